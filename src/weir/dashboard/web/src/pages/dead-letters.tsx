import type { Me } from "../api/types";
import { Page } from "../ui/bits";

export function DeadLetters(_: { me: Me }) {
  return <Page title="DeadLetters">{null}</Page>;
}
