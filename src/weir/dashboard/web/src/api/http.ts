// All requests to the public API go through here: with the token and the environment that their maker was shown.

import { forget, type Environment } from "../state/session";
import { parse, write } from "../lib/json";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }

  /** Whether asking again would be answered alike: the server has looked at the request and refuses it. */
  get isRefusal(): boolean {
    return this.status >= 400 && this.status < 500 && this.status !== 408 && this.status !== 429;
  }
}

export type Options = { method?: string; body?: unknown; signal?: AbortSignal; headers?: Record<string, string> };
export type Query = Record<string, string | number | undefined>;

const TIMEOUT_MS = 15_000;

/** The API as one token and one environment see it. Whoever has it keeps asking there, whatever the address says by then. */
export class Api {
  constructor(
    readonly token: string | null,
    readonly scope: Environment | null,
  ) {}

  request = async (path: string, options: Options = {}): Promise<Response> => {
    const headers: Record<string, string> = { ...this.headers(), ...options.headers };
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    const method = options.method ?? "GET";
    const init: RequestInit = { method, headers, signal: options.signal ?? AbortSignal.timeout(TIMEOUT_MS) };
    if (options.body !== undefined) init.body = write(options.body);
    let response: Response;
    try {
      response = await fetch(path, init);
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Problem(0, "unreachable", method === "GET" ? "The server does not answer." : "The server did not answer, so it is not known whether this was done. Look before you try again.");
    }
    if (!response.ok) throw await this.problemOf(response);
    return response;
  };

  /** An answer; of the members named in `raw`, the JSON text itself, because JavaScript cannot hold every number. */
  get = async <T>(path: string, query: Query = {}, raw: string[] = []): Promise<T> => {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") search.set(name, `${value}`);
    const tail = search.toString();
    return parse(await (await this.request(tail ? `${path}?${tail}` : path)).text(), raw) as T;
  };

  /** With a revision, only what still has it is changed; else somebody changed it meanwhile, and the server says what. */
  send = async <T>(method: string, path: string, body?: unknown, revision?: string): Promise<T> => {
    const headers: Record<string, string> = revision ? { "If-Match": `"${revision}"` } : {};
    const text = await (await this.request(path, body === undefined ? { method, headers } : { method, body, headers })).text();
    return (text ? JSON.parse(text) : null) as T;
  };

  private headers(): Record<string, string> {
    const headers: Record<string, string> = {};
    if (this.token) headers["Authorization"] = `Bearer ${this.token}`;
    if (this.scope) {
      headers["Weir-Organization"] = encodeURIComponent(this.scope.organization);
      headers["Weir-Project"] = encodeURIComponent(this.scope.project);
      headers["Weir-Environment"] = encodeURIComponent(this.scope.environment);
    }
    return headers;
  }

  private async problemOf(response: Response): Promise<Problem> {
    let detail = response.statusText || `status ${response.status}`;
    let code = "error";
    try {
      const body = (await response.json()) as { detail?: string; title?: string; code?: string };
      detail = body.detail ?? body.title ?? detail;
      code = body.code ?? code;
    } catch {
      // The body is not a problem document, so only the status is known.
    }
    if (response.status === 401) forget(this.token, "Your token is no longer accepted. Sign in again.");
    return new Problem(response.status, code, detail);
  }
}
