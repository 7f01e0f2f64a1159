import type { Me } from "../api/types";
import { Page } from "../ui/bits";

export function Alerts(_: { me: Me }) {
  return <Page title="Alerts">{null}</Page>;
}
