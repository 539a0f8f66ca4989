import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { EndSessionsDialog, KeyDialog, RevokeKeyDialog } from "../actions/admin";
import { api } from "../api/queries";
import { may, rolesFor } from "../api/session";
import type { Key } from "../api/types";
import { millis, visible, words } from "../format";
import { Badge, Id, When } from "../ui/basics";
import { useSession } from "../ui/context";
import { Empty, FirstOnly, Forbidden, Loaded } from "../ui/messages";
import { Page } from "../ui/page";
import { DataTable } from "../ui/table";

export function KeysPage() {
  const session = useSession();
  return may(session, "keys") ? <KeyList /> : <Page title="Keys"><Forbidden needs={rolesFor("keys")} /></Page>;
}

function KeyList() {
  const keys = useQuery(api.keys());
  const [making, setMaking] = useState(false);
  const [ending, setEnding] = useState(false);
  const [revoking, setRevoking] = useState<Key | null>(null);
  return (
    <Page title="Keys" about="API keys in your scope. Secrets are shown once, when a key is made. Last use is counted since the server started." actions={<><button type="button" className="button" onClick={() => setEnding(true)}>End sessions</button><button type="button" className="button primary" onClick={() => setMaking(true)}>Make key</button></>}>
      <Loaded query={keys}>
        {(rows: Key[]) => (
          <DataTable label="Keys" rows={rows} rowId={(key) => key.id} empty={<Empty>No key yet besides the root key.</Empty>} columns={[
            { id: "name", header: "Name", value: (key) => key.name, cell: (key) => visible(key.name) },
            { id: "id", header: "Id", cell: (key) => <Id id={key.id} /> },
            { id: "role", header: "Role", value: (key) => key.role, cell: (key) => <>{words(key.role)} {(key.capabilities ?? []).map((one) => <Badge key={one} tone="orange">{one}</Badge>)}</> },
            { id: "scope", header: "Scope", value: (key) => key.scope, cell: (key) => visible(key.scope) },
            ...(rows.some((key) => key.region || key.node) ? [{ id: "bound", header: "Bound to", cell: (key: Key) => visible([key.region, key.node].filter(Boolean).join(" ")) }] : []),
            { id: "created", header: "Made", num: true, value: (key) => millis(key.created_at), cell: (key) => <When at={key.created_at} /> },
            { id: "used", header: "Last used", num: true, value: (key) => millis(key.last_used_at), cell: (key) => key.last_used_at ? <When at={key.last_used_at} /> : <span className="faint" title="Not used since the server started">not since start</span> },
            { id: "expires", header: "Expires", num: true, value: (key) => millis(key.expires_at), cell: (key) => key.expires_at ? <When at={key.expires_at} /> : <span className="faint">never</span> },
            { id: "revoke", header: "", cell: (key) => <button type="button" className="button small danger" onClick={() => setRevoking(key)} aria-label={`Revoke ${visible(key.name)}`}>Revoke</button> },
          ]} />
        )}
      </Loaded>
      <FirstOnly of={[api.keys()]} what="keys" />
      {ending ? <EndSessionsDialog close={() => setEnding(false)} /> : null}
      {making ? <KeyDialog close={() => setMaking(false)} /> : null}
      {revoking ? <RevokeKeyDialog apiKey={revoking} close={() => setRevoking(null)} /> : null}
    </Page>
  );
}
