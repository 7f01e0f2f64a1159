import type { Me } from "../api/types";
import { Page } from "../ui/bits";

export function Operations(_: { me: Me }) {
  return <Page title="Operations">{null}</Page>;
}
