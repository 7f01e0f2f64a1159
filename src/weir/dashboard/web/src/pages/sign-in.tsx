import { useState } from "preact/hooks";
import { go, route } from "../state/route";
import { notice, signIn } from "../state/session";

export function SignIn() {
  const [value, setValue] = useState(route.value.query.get("token") ?? "");
  const submit = (event: Event) => {
    event.preventDefault();
    if (!value.trim()) return;
    signIn(value.trim());
    if (route.value.path[0] === "sign-in") go([]);
  };
  return (
    <main class="sign-in panel" id="content">
      <h1>Sign in to Weir</h1>
      {notice.value && (
        <p class="failed" role="alert">
          {notice.value}
        </p>
      )}
      <form class="form" onSubmit={submit}>
        <label>
          Token
          <input
            type="password"
            autocomplete="current-password"
            value={value}
            onInput={(event) => setValue(event.currentTarget.value)}
          />
          <small>
            <code>weir up</code> keeps one in <code>.weir/admin.token</code>; make others with <code>weir token create</code>. The scope of the token decides what you see.
          </small>
        </label>
        <button class="primary" type="submit">
          Sign in
        </button>
      </form>
    </main>
  );
}
