// All requests to the public API go through here: with the token, the chosen environment, and problems as errors.

import { environment, forget, token } from "../state/session";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export type Options = { method?: string; body?: unknown; signal?: AbortSignal; headers?: Record<string, string> };

const TIMEOUT_MS = 15_000;

export async function request(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...scopeHeaders(), ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = {
    method: options.method ?? "GET",
    headers,
    signal: options.signal ?? AbortSignal.timeout(TIMEOUT_MS),
  };
  if (options.body !== undefined) init.body = JSON.stringify(options.body);
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The server does not answer.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function get<T>(path: string, query: Record<string, string | number | undefined> = {}): Promise<T> {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") search.set(name, `${value}`);
  const tail = search.toString();
  return (await (await request(tail ? `${path}?${tail}` : path)).json()) as T;
}

export async function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await request(path, body === undefined ? { method } : { method, body });
  const text = await response.text();
  return (text ? JSON.parse(text) : null) as T;
}

export function scopeHeaders(): Record<string, string> {
  const headers: Record<string, string> = {};
  if (token.value) headers["Authorization"] = `Bearer ${token.value}`;
  const chosen = environment.value;
  if (chosen) {
    headers["Weir-Organization"] = encodeURIComponent(chosen.organization);
    headers["Weir-Project"] = encodeURIComponent(chosen.project);
    headers["Weir-Environment"] = encodeURIComponent(chosen.environment);
  }
  return headers;
}

async function problemOf(response: Response): Promise<Problem> {
  let detail = response.statusText || `status ${response.status}`;
  let code = "error";
  try {
    const body = (await response.json()) as { detail?: string; title?: string; code?: string };
    detail = body.detail ?? body.title ?? detail;
    code = body.code ?? code;
  } catch {
    // The body is not a problem document, so only the status is known.
  }
  if (response.status === 401) forget("Your token is no longer accepted. Sign in again.");
  return new Problem(response.status, code, detail);
}
