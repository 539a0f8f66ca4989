import type { ReactNode } from "react";
import { Empty, ProblemNote } from "./messages";
import { Page } from "./page";
import { useNoAccount } from "./search";

/** A page about one account, or why there is none. */
export function AccountPage({ title, children, actions }: { title: string; children: () => ReactNode; actions?: ReactNode }) {
  const none = useNoAccount();
  if (none.error) return <Page title={title}><ProblemNote error={none.error} retry={none.retry} /></Page>;
  if (none.isEmpty) return <Page title={title} actions={actions}><Empty>No account yet. An account holds credits and pays for jobs:<pre>bursar account open acme --kind org{"\n"}bursar grant add acme 100 --kind purchase</pre></Empty></Page>;
  return children();
}
