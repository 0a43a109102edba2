// Sign-in with a key, or with the one-time link that `onsale up` prints.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, Problem } from "./api";
import { session } from "./live";
import type { Session } from "./documents";

const problem = signal<string | null>(null);
const busy = signal(false);

// Signs in with the secret in the address, if there is one; it is taken out of the address at once.
export async function signInByLink(): Promise<void> {
  const link = new URLSearchParams(location.hash.slice(1)).get("link");
  if (!link) return;
  history.replaceState(null, "", location.pathname + location.search);
  await signIn({ link });
}

async function signIn(wanted: { key: string } | { link: string }): Promise<void> {
  problem.value = null;
  busy.value = true;
  try {
    session.value = (await call<Session>("POST", "/console/session", { body: wanted })).data;
  } catch (failed) {
    if (!(failed instanceof Problem)) {
      problem.value = "The console does not answer. Try again in a moment.";
    } else if (failed.status === 401 && "key" in wanted) {
      problem.value = "This key is not known.";
    } else {
      problem.value = failed.detail || failed.title;
    }
  } finally {
    busy.value = false;
  }
}

export function SignIn() {
  useEffect(() => {
    document.title = "Sign in · Onsale console";
  }, []);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const key = new FormData(event.currentTarget as HTMLFormElement).get("key");
    if (key && !busy.value) void signIn({ key: String(key).trim() });
  };
  return (
    <main class="card panel signin">
      <h1><i class="mark" aria-hidden="true" />Onsale console</h1>
      <form method="post" action="/console/session" onSubmit={submit}>
        <input class="visually-hidden" name="username" autocomplete="username" value="operator" aria-label="Account" tabindex={-1} readOnly />
        <label for="key">Operator's key</label>
        <input class="field" id="key" name="key" type="password" autocomplete="current-password" required autofocus
          spellcheck={false} autocapitalize="off" aria-describedby="key-help key-problem" aria-invalid={problem.value ? "true" : undefined} />
        <p id="key-help" class="muted">One of <code>ADMIN_KEYS</code>; after <code>onsale up</code> it lies in <code>admin.key</code> of the data directory.</p>
        <p id="key-problem" class="problem" role="alert">{problem.value}</p>
        <button class="button primary" disabled={busy.value}>{busy.value ? "Signing in…" : "Sign in"}</button>
      </form>
    </main>
  );
}
