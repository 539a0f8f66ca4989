import { useState } from "react";
import { path, send, type Answer } from "../api/client";
import { may } from "../api/session";
import type { Job, Refund } from "../api/types";
import { micros, parseAmount, plainAmount, visible } from "../format";
import { Amount } from "../ui/basics";
import { useSession } from "../ui/context";
import { currentAttempt, holdLeft, isLive } from "../pages/jobs/math";
import { ActionDialog } from "./action";
import { AmountField, positive, TextField } from "./fields";

/** What the caller may do with a job. */
export function JobActions({ job }: { job: Job }) {
  const session = useSession();
  const [open, setOpen] = useState<"cancel" | "preempt" | "refund" | null>(null);
  const close = () => setOpen(null);
  const live = isLive(job);
  return (
    <div className="actions">
      {live && may(session, "cancel") ? <button type="button" className="button danger" onClick={() => setOpen("cancel")}>Cancel job</button> : null}
      {live && currentAttempt(job) && may(session, "preempt") ? <button type="button" className="button" onClick={() => setOpen("preempt")}>Preempt job</button> : null}
      {!live && micros(job.charged) > 0n && may(session, "refund") ? <button type="button" className="button" onClick={() => setOpen("refund")}>Refund</button> : null}
      {open === "cancel" ? <CancelDialog job={job} close={close} /> : null}
      {open === "preempt" ? <PreemptDialog job={job} close={close} /> : null}
      {open === "refund" ? <RefundDialog job={job} close={close} /> : null}
    </div>
  );
}

const named = (job: Job) => visible(job.spec.name) || visible(job.id);

function CancelDialog({ job, close }: { job: Job; close: () => void }) {
  const grace = job.spec.grace_seconds;
  return (
    <ActionDialog
      title={`Cancel ${named(job)}`} verb="Cancel job" danger ready close={close}
      run={(key) => send<Job>("POST", path`/v1/jobs/${job.id}/cancel`, { idempotencyKey: key })}
      effect={
        <ul className="section">
          {currentAttempt(job) ? <li>It is asked to stop{grace ? ` and has ${grace} s to do so` : ""}.</li> : <li>It leaves the queue at once.</li>}
          <li><Amount value={job.charged} /> credits stay charged.</li>
          <li>Up to <Amount value={holdLeft(job)} /> held credits return to the grants that they came from. Those whose grant has expired expire.</li>
        </ul>
      }
      done={() => <span>The job is being cancelled.</span>}
    />
  );
}

function PreemptDialog({ job, close }: { job: Job; close: () => void }) {
  const attempt = currentAttempt(job);
  return (
    <ActionDialog
      title={`Preempt ${named(job)}`} verb="Preempt job" danger ready close={close}
      run={(key) => send<Job>("POST", path`/v1/jobs/${job.id}/preempt`, { idempotencyKey: key })}
      effect={
        <ul className="section">
          <li>Its attempt on {visible(attempt?.nodes.join(", "))} is stopped{job.spec.grace_seconds ? ` within ${job.spec.grace_seconds} s` : ""}; what it has used stays charged.</li>
          <li>The job returns to the queue and starts again from its own checkpoint, if it writes one.</li>
          <li>Its place in the queue is decided by its class and the fair share of {visible(job.account)}.</li>
        </ul>
      }
      done={() => <span>The job is being stopped and will wait again.</span>}
    />
  );
}

function RefundDialog({ job, close }: { job: Job; close: () => void }) {
  const [amount, setAmount] = useState(job.charged);
  const [id, setId] = useState("");
  const wanted = parseAmount(amount);
  const tooMuch = wanted !== undefined && wanted > micros(job.charged);
  return (
    <ActionDialog
      title={`Refund ${named(job)}`} verb="Refund credits" ready={positive(wanted) && !tooMuch} close={close}
      run={(key) => send<Refund>("POST", "/v1/refunds", { body: { job: job.id, amount: plainAmount(wanted ?? 0n), ...(id ? { id } : {}) }, idempotencyKey: key })}
      effect={wanted === undefined ? null : tooMuch ? <p className="text-tone tone-red">More than the <Amount value={job.charged} /> that were charged.</p> : (
        <ul className="section">
          <li><Amount value={wanted} /> credits return to the grants that paid for the job; those whose grant has expired stay expired.</li>
          <li>The cost of the job becomes <Amount value={micros(job.charged) - wanted} />.</li>
        </ul>
      )}
      done={([answer]) => <span><Amount value={(answer as Answer<Refund>).data.refunded} /> credits were refunded by {visible((answer as Answer<Refund>).data.id)}.</span>}
    >
      <AmountField label="Amount" text={amount} onChange={setAmount} hint={`At most ${job.charged}.`} />
      <TextField label="Your id (optional)" value={id} onChange={setId} hint="Makes a repeat return the same refund." />
    </ActionDialog>
  );
}
