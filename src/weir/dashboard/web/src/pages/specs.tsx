import type { Me } from "../api/types";
import { Page } from "../ui/bits";

export function Specs(_: { me: Me }) {
  return <Page title="Specs">{null}</Page>;
}
