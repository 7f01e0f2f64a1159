// The rights of a role. The API decides; the pages leave out buttons that it would refuse.

import type { Me, Role } from "../api/types";

const RANKS: Record<Role, number> = { read: 0, write: 1, admin: 2, operator: 3 };

export function mayWrite(me: Me): boolean {
  return RANKS[me.role] >= RANKS.write;
}

export function mayOperate(me: Me): boolean {
  return RANKS[me.role] >= RANKS.operator;
}

export function mayAdminister(me: Me): boolean {
  return RANKS[me.role] >= RANKS.admin;
}
