// The token of this browser session, and the environment that is shown.

import { computed, signal } from "@preact/signals";
import { route } from "./route";

export type Environment = { organization: string; project: string; environment: string };

const KEY = "weir.token";

export const token = signal<string | null>(sessionStorage.getItem(KEY));
export const notice = signal<string | null>(null);

export function signIn(value: string): void {
  sessionStorage.setItem(KEY, value);
  token.value = value;
  notice.value = null;
}

/** Sign out; a refusal of a token that was replaced meanwhile says nothing about the one that is used now. */
export function forget(refused: string | null = token.value, reason: string | null = null): void {
  if (refused !== token.value) return;
  sessionStorage.removeItem(KEY);
  token.value = null;
  notice.value = reason;
}

/** Routes inside an environment start with its three names: `e / org / project / env / page / …`. */
export const environment = computed<Environment | null>(() => {
  const [head, organization, project, name] = route.value.path;
  if (head !== "e" || !organization || !project || !name) return null;
  return { organization, project, environment: name };
});

export function environmentPath(scope: Environment, ...rest: string[]): string[] {
  return ["e", scope.organization, scope.project, scope.environment, ...rest];
}
