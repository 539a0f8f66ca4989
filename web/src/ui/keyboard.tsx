import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, type RefObject } from "react";
import type { Session } from "../api/session";
import { Dialog } from "./dialog";
import { menuFor } from "./menu";
import { isForPage } from "./rowkeys";
import type { PageSearch } from "./search";

/** `g` waits this long for the second key. */
const SEQUENCE_TIMEOUT = 1_200;

/** `/` search, `g` and a letter for a page, `?` help. Rows have `j`, `k`, `o` (rowkeys.ts). */
export function useGlobalKeys(session: Session, search: RefObject<HTMLInputElement | null>, help: () => void) {
  const navigate = useNavigate();
  const goAt = useRef(0);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!isForPage(event)) return;
      if (event.key === "/") {
        event.preventDefault();
        search.current?.focus();
      } else if (event.key === "?") {
        help();
      } else if (event.key === "g") {
        goAt.current = Date.now();
      } else if (Date.now() - goAt.current < SEQUENCE_TIMEOUT) {
        goAt.current = 0;
        const entry = menuFor(session).flatMap(([, entries]) => entries).find(({ key }) => key === event.key);
        if (!entry) return;
        event.stopImmediatePropagation();
        const keep = ({ account, region }: PageSearch) => ({ ...(account ? { account } : {}), ...(region ? { region } : {}) });
        void navigate({ to: entry.to, search: keep as never });
      }
    };
    document.addEventListener("keydown", press, { capture: true });
    return () => document.removeEventListener("keydown", press, { capture: true });
  }, [session, navigate, search, help]);
}

export function Help({ session, close }: { session: Session; close: () => void }) {
  const keys: [string, string][] = [
    ["/", "Search"],
    ["j  k", "Next and previous row"],
    ["o", "Open the row"],
    ["Esc", "Close the panel or dialog"],
    ["?", "This help"],
    ...menuFor(session).flatMap(([, entries]) => entries).filter(({ key }) => key).map(({ key, name }): [string, string] => [`g ${key}`, name]),
  ];
  return (
    <Dialog title="Keyboard" close={close}>
      <dl className="facts">{keys.map(([key, text]) => [<dt key={`${key} key`}><kbd>{key}</kbd></dt>, <dd key={key}>{text}</dd>])}</dl>
    </Dialog>
  );
}
