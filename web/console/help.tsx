// The help: what each key does, and a switch that turns the keys off.
import { useLayoutEffect, useRef } from "preact/hooks";
import { helpOpen, KEYS, keysOn, switchKeys } from "./keys";
import { session } from "./live";

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (helpOpen.value) dialog.current?.showModal();
    else dialog.current?.close();
  }, [helpOpen.value]);
  return (
    <dialog ref={dialog} class="panel help" aria-labelledby="help" onClose={() => { helpOpen.value = dialog.current?.open ?? false; }}>
      <h2 id="help">Keys</h2>
      <dl>{KEYS.map(([key, words]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{words}</dd></div>)}</dl>
      <label class="check"><input type="checkbox" checked={keysOn.value} onChange={(event) => switchKeys(event.currentTarget.checked)} /> Single keys act on this screen</label>
      <p class="muted">Signed in as {session.value?.name} ({session.value?.role}).</p>
      <form method="dialog"><button class="button primary">Close</button></form>
    </dialog>
  );
}
