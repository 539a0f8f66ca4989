import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { path, send, type Answer } from "../api/client";
import { api } from "../api/queries";
import type { Key, MachineNode, Price, Role } from "../api/types";
import { count, parseAmount, plainAmount, visible } from "../format";
import { Amount, Copy, NodeBadge, When } from "../ui/basics";
import { useSession } from "../ui/context";
import { ActionDialog } from "./action";
import { AmountField, endOfDay, positive, SelectField, TextField } from "./fields";

const ROLES: Role[] = ["viewer", "submitter", "billing", "operator", "auditor", "admin", "agent"];
const MEANING: Record<Role, string> = {
  viewer: "reads", submitter: "reads, submits and cancels jobs, places holds and charges", billing: "manages grants, refunds, transfers, budgets and prices, and spends",
  operator: "manages nodes, quotas, classes and freezes; preempts and cancels jobs", auditor: "reads, including the audit trail and its proofs", admin: "does everything, including keys", agent: "registers a node and reports its jobs",
};

export function KeyDialog({ close }: { close: () => void }) {
  const session = useSession();
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [scope, setScope] = useState(session.scope);
  const [expires, setExpires] = useState("");
  return (
    <ActionDialog
      title="Make key" verb="Make key" ready={name !== "" && scope !== ""} close={close}
      run={(key) => send<Key>("POST", "/v1/keys", { body: { name, role, scope, ...(expires ? { expires_at: endOfDay(expires) } : {}) }, idempotencyKey: key })}
      effect={<ul className="section"><li>Its holder {MEANING[role]}, in {scope === "*" ? "every account" : <>{visible(scope)} and all below it</>}.</li><li>{expires ? `It ends with ${expires}, in UTC.` : "It works until it is revoked."}</li><li>The secret is shown once.</li></ul>}
      done={([answer]) => <MadeKey made={(answer as Answer<Key>).data} />}
    >
      <TextField label="Name" value={name} onChange={setName} required hint="For whom or what it is." />
      <SelectField label="Role" value={role} choices={ROLES} onChange={setRole} />
      <TextField label="Scope" value={scope} onChange={setScope} required hint="An account path, within your own scope." />
      <TextField label="Expires (optional)" type="date" value={expires} onChange={setExpires} />
    </ActionDialog>
  );
}

/** The secret is in the first answer alone. Where that was lost, the key is of no use. */
function MadeKey({ made }: { made: Key }) {
  if (!made.key) return <span>The key {visible(made.id)} was made by the first try, whose answer was lost. Its secret is not shown again: revoke this key and make another.</span>;
  return <span className="break">The key, shown this once: <code>{made.key}</code><Copy text={made.key} label="Copy the key" /></span>;
}

/** Ends the sessions of a key or person, in browsers and on command lines. */
export function EndSessionsDialog({ close }: { close: () => void }) {
  const [actor, setActor] = useState("");
  return (
    <ActionDialog
      title="End sessions" verb="End sessions" danger ready={actor.trim() !== ""} close={close}
      run={() => send("DELETE", "/v1/session", { query: { actor: actor.trim() } })}
      effect={actor.trim() ? <ul className="section"><li>Every session of {visible(actor.trim())} in your scope ends now, in browsers and on command lines.</li><li>A key stays valid. A person may sign in again, unless the identity provider refuses.</li></ul> : null}
      done={() => <span>The sessions of {visible(actor.trim())} have ended.</span>}
    >
      <TextField label="Key or person" value={actor} onChange={setActor} required hint="Its id in the audit trail, such as key_… or ada@https://id.example." />
    </ActionDialog>
  );
}

export function RevokeKeyDialog({ apiKey, close }: { apiKey: Key; close: () => void }) {
  return (
    <ActionDialog
      title={`Revoke key ${visible(apiKey.name)}`} verb="Revoke key" danger ready close={close}
      run={(key) => send("DELETE", path`/v1/keys/${apiKey.id}`, { idempotencyKey: key })}
      effect={<ul className="section"><li>Every request with this key is refused from now on; its streams end within a second.</li><li>It was made <When at={apiKey.created_at} /> with the role {apiKey.role} in {visible(apiKey.scope)}. This cannot be undone.</li></ul>}
      done={() => <span>{visible(apiKey.name)} is revoked.</span>}
    />
  );
}

export function DrainDialog({ node, close }: { node: MachineNode; close: () => void }) {
  const [force, setForce] = useState(false);
  // Decided when it opens: the node changes its state while the dialog shows the answer.
  const [resume] = useState(node.state === "draining" || node.state === "drained");
  const jobs = node.attempts.length;
  return (
    <ActionDialog
      title={`${resume ? "Resume" : "Drain"} ${visible(node.id)}`} verb={resume ? "Resume node" : "Drain node"} danger={!resume} ready close={close}
      run={(key) => send<MachineNode>("POST", resume ? path`/v1/nodes/${node.id}/resume` : path`/v1/nodes/${node.id}/drain`, { ...(resume ? {} : { body: { force } }), idempotencyKey: key })}
      effect={resume ? <p>New jobs are placed on it again.</p> : (
        <ul className="section">
          <li>Nothing new is placed on it.</li>
          <li>{jobs === 0 ? "No job runs on it." : force ? jobs === 1 ? "1 attempt on it is stopped now and its job waits again." : `${count(jobs, "attempt")} on it are stopped now and their jobs wait again.` : jobs === 1 ? "1 attempt on it runs to its end." : `${count(jobs, "attempt")} on it run to their end.`}</li>
        </ul>
      )}
      done={([answer]) => <span>{visible(node.id)} is now <NodeBadge state={(answer as Answer<MachineNode>).data.state} /></span>}
    >
      {resume ? null : <label className="check span"><input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} />Stop what runs on it</label>}
    </ActionDialog>
  );
}

export function PriceDialog({ gpuType, close }: { gpuType?: string; close: () => void }) {
  const [type, setType] = useState(gpuType ?? "");
  const [amount, setAmount] = useState("");
  const [region, setRegion] = useState("");
  const prices = useQuery(api.prices());
  const wanted = parseAmount(amount);
  const now = prices.data?.find((price) => price.gpu_type === type && (price.region ?? "") === region);
  return (
    <ActionDialog
      title="Set price" verb="Set price" ready={type !== "" && positive(wanted)} close={close}
      run={(key) => send<Price>("PUT", path`/v1/prices/${type}`, { body: { per_gpu_hour: plainAmount(wanted ?? 0n), ...(region ? { region } : {}) }, idempotencyKey: key })}
      effect={positive(wanted) && type ? (
        <ul className="section">
          <li>{now ? <>An hour of {visible(type)} costs <Amount value={now.per_gpu_hour} /> now and <strong><Amount value={wanted} /></strong> from now on.</> : <>An hour of {visible(type)} costs <strong><Amount value={wanted} /></strong> credits.</>}</li>
          <li>Attempts that run keep the price at which they started. Waiting jobs get the new price when they start.</li>
        </ul>
      ) : null}
      done={([answer]) => { const made = (answer as Answer<Price>).data; return <span>{visible(made.gpu_type)}: <Amount value={made.per_gpu_hour} /> per GPU hour, version {made.version}.</span>; }}
    >
      <TextField label="GPU type" value={type} onChange={setType} required />
      <AmountField label="Credits per GPU hour" text={amount} onChange={setAmount} />
      <TextField label="Region (optional)" value={region} onChange={setRegion} hint="Every region if empty." />
    </ActionDialog>
  );
}
