// The frame around every page: sign-in, the bar with the environment, and a warning if the numbers are old.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Me } from "./api/types";
import { Api } from "./api/http";
import { ago } from "./lib/format";
import { Access } from "./pages/access";
import { Alerts } from "./pages/alerts";
import { Channels } from "./pages/channels";
import { DeadLetters } from "./pages/dead-letters";
import { Environments } from "./pages/environments";
import { Message } from "./pages/message";
import { Operations } from "./pages/operations";
import { Overview } from "./pages/overview";
import { Pipeline } from "./pages/pipeline";
import { Queue } from "./pages/queue";
import { Schedules } from "./pages/schedules";
import { SignIn } from "./pages/sign-in";
import { Specs } from "./pages/specs";
import { Wall } from "./pages/wall";
import { Processes } from "./pages/workers";
import { ApiContext, RenewMe, useApi } from "./state/api";
import { useNow } from "./state/clock";
import { usePoll } from "./state/poll";
import { go, href, route } from "./state/route";
import { environment, environmentPath, forget, signIn, token, type Environment } from "./state/session";
import { secret } from "./state/secret";
import { stale } from "./state/stale";
import { theme, toggleTheme } from "./state/theme";
import { Dialog, Failed, Loading, Secret, Toasts } from "./ui/bits";
import { Search } from "./ui/search";

const PAGES: [path: string, label: string, page: (props: { me: Me }) => preact.JSX.Element][] = [
  ["", "Overview", Overview],
  ["dead-letters", "Dead letters", DeadLetters],
  ["workers", "Processes", Processes],
  ["operations", "Operations", Operations],
  ["schedules", "Schedules", Schedules],
  ["alerts", "Alerts", Alerts],
  ["channels", "Channels", Channels],
  ["pipeline", "Pipeline", Pipeline],
  ["specs", "Specs", Specs],
  ["access", "Access", Access],
];
const NAMES = PAGES.map(([path, label]): [string, string] => [path, label]);

export function App() {
  const { offered, decide } = useSignInLink();
  const everywhere = useMemo(() => new Api(token.value, null), [token.value]);
  if (!token.value) return <SignIn />;
  return (
    <ApiContext.Provider value={everywhere}>
      <SignedIn key={token.value} />
      <Dialog open={offered !== null} title="Sign in with the token of this link?" onClose={() => decide(false)}>
        <p>You are signed in already. If you did not ask for this link, stay as you are.</p>
        <p class="row">
          <button type="button" onClick={() => decide(true)}>
            Sign in with it
          </button>
          <button type="button" class="primary" onClick={() => decide(false)}>
            Stay
          </button>
        </p>
      </Dialog>
    </ApiContext.Provider>
  );
}

/** A link from the terminal carries the token; it is taken out of the address at once. Whoever is signed in already is asked. */
function useSignInLink(): { offered: string | null; decide: (isTaken: boolean) => void } {
  const { path, query } = route.value;
  const given = path[0] === "sign-in" ? query.get("token") : null;
  const [offered, setOffered] = useState<string | null>(null);
  useEffect(() => {
    if (!given) return;
    if (!token.value || token.value === given) signIn(given);
    else setOffered(given);
    history.replaceState(null, "", location.pathname);
    go([]);
  }, [given]);
  const decide = (isTaken: boolean) => {
    if (isTaken && offered) signIn(offered);
    setOffered(null);
  };
  return { offered, decide };
}

function SignedIn() {
  const { get } = useApi();
  const me = usePoll(() => get<Me>("/api/v1/me"), [], 60_000);
  const here = environment.value;
  // Two projects may have an environment of the same name; nothing that was made for one is shown or sent in the other.
  const place = JSON.stringify(here);
  const api = useMemo(() => new Api(token.value, here), [place]);
  const onWall = here !== null && route.value.path[4] === "wall";
  const only = me.data?.environments.length === 1 ? me.data.environments[0] : undefined;
  // Only once: a reader who comes back to the list wants to see it, or to make another environment.
  const arrived = useRef(false);
  const content = useRef<HTMLElement>(null);
  useEffect(() => {
    if (!me.data || arrived.current) return;
    arrived.current = true;
    if (!here && only && !route.value.path.length) go(environmentPath(only));
  }, [here, only, me.data]);
  return (
    <>
      {/* A link to the content would be taken for the address of a page. */}
      <button type="button" class="skip" onClick={() => content.current?.focus()}>
        Skip to content
      </button>
      {stale.since.value !== null && <OldNumbers since={stale.since.value} />}
      <ApiContext.Provider key={place} value={api}>
        <RenewMe.Provider value={me.refresh}>
          {!onWall && <Bar here={here} />}
          <main id="content" ref={content} tabIndex={-1} class={onWall ? "whole" : undefined}>
            <Failed error={me.data ? null : me.error} />
            {me.data ? <Current me={me.data} here={here} /> : me.error ? null : <Loading />}
          </main>
        </RenewMe.Provider>
      </ApiContext.Provider>
      <Secret title="The new token" text={secret.value} onClose={() => (secret.value = null)} />
      <Toasts />
    </>
  );
}

function OldNumbers({ since }: { since: number }) {
  return (
    <div class="banner" role="alert">
      The server stopped answering {ago(since, useNow())}, at least for some numbers on this page. These are old; trying again.
    </div>
  );
}

function Current({ me, here }: { me: Me; here: Environment | null }) {
  if (!here) return <Environments me={me} />;
  const name = route.value.path[4] ?? "";
  if (name === "queue") return <Queue me={me} />;
  if (name === "message") return <Message me={me} />;
  if (name === "wall") return <Wall me={me} />;
  const found = PAGES.find(([path]) => path === name);
  if (!found) return <p class="empty">There is no such page.</p>;
  const Shown = found[2];
  return <Shown me={me} />;
}

function Bar({ here }: { here: Environment | null }) {
  const current = route.value.path[4] ?? "";
  const [open, setOpen] = useState(false);
  useEffect(() => {
    document.title = here ? `${here.environment} · Weir` : "Weir";
  }, [here?.environment]);
  useEffect(() => setOpen(false), [route.value]);
  return (
    <header class={`bar ${open ? "open" : ""}`}>
      <a class="brand" href={href([])}>
        Weir
      </a>
      {here && (
        <button type="button" class="menu" aria-expanded={open} aria-controls="pages" onClick={() => setOpen(!open)}>
          {NAMES.find(([path]) => path === current)?.[1] ?? "Overview"} <span aria-hidden="true">▾</span>
        </button>
      )}
      {here && (
        <nav id="pages" aria-label="Pages">
          {NAMES.map(([path, label]) => (
            <a
              key={path}
              href={href(environmentPath(here, ...(path ? [path] : [])))}
              aria-current={current === path || (path === "" && (current === "queue" || current === "message")) ? "page" : undefined}
            >
              {label}
            </a>
          ))}
        </nav>
      )}
      <div class="row">
        {here && <Search here={here} pages={NAMES} />}
        {here && (
          <a class="place" href={href([])} title={`${here.organization} / ${here.project}: other environments`}>
            {here.environment}
          </a>
        )}
        <button type="button" class="plain" onClick={toggleTheme} aria-label={`Switch to the ${theme.value === "dark" ? "light" : "dark"} theme`}>
          {theme.value === "dark" ? "☀" : "☾"}
        </button>
        <button type="button" onClick={() => forget()}>
          Sign out
        </button>
      </div>
    </header>
  );
}
