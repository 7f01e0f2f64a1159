import type { Me } from "../api/types";
import { Page } from "../ui/bits";

export function Pipeline(_: { me: Me }) {
  return <Page title="Pipeline">{null}</Page>;
}
