import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { PriceDialog } from "../actions/admin";
import { api } from "../api/queries";
import { may } from "../api/session";
import { formatSeconds, millis, visible } from "../format";
import { When } from "../ui/basics";
import { useSession } from "../ui/context";
import { Empty, Loaded } from "../ui/messages";
import { Page, Section } from "../ui/page";
import { amountColumn, DataTable } from "../ui/table";

export function PricesPage() {
  const session = useSession();
  const prices = useQuery(api.prices());
  const classes = useQuery(api.classes());
  const [dialog, setDialog] = useState(false);
  return (
    <Page title="Prices" about="Credits per GPU hour. A class multiplies them. An attempt keeps the price at which it started." actions={may(session, "price") ? <button type="button" className="button primary" onClick={() => setDialog(true)}>Set price</button> : undefined}>
      <Section title="GPU types">
        <Loaded query={prices}>
          {(rows) => (
            <DataTable label="Prices" rows={rows} rowId={(price) => `${price.gpu_type} ${price.region ?? ""}`} empty={<Empty>No price is set: jobs cost nothing until one is.<pre>bursar price set H100 2.5</pre></Empty>} columns={[
              { id: "type", header: "GPU type", value: (price) => price.gpu_type, cell: (price) => visible(price.gpu_type) },
              { id: "region", header: "Region", value: (price) => price.region ?? "", cell: (price) => visible(price.region) || "every region" },
              amountColumn("price", "Price", rows, (price) => price.per_gpu_hour, { unit: "credits per GPU hour" }),
              { id: "version", header: "Version", num: true, value: (price) => price.version, cell: (price) => price.version },
              { id: "since", header: "In force since", num: true, value: (price) => millis(price.effective_at), cell: (price) => <When at={price.effective_at} exact /> },
            ]} />
          )}
        </Loaded>
      </Section>
      <Section title="Classes">
        <Loaded query={classes}>
          {(rows) => (
            <DataTable label="Classes" rows={rows} rowId={(one) => one.name} columns={[
              { id: "name", header: "Class", value: (one) => one.name, cell: (one) => visible(one.name) },
              { id: "rank", header: "Rank", num: true, value: (one) => one.rank, cell: (one) => one.rank },
              amountColumn("factor", "Price ×", rows, (one) => one.price_multiplier),
              { id: "preempts", header: "Preempts", cell: (one) => one.preempts.map(visible).join(", ") || <span className="faint">none</span> },
              { id: "preemptible", header: "Preemptible", cell: (one) => (one.default_preemptible ? "yes" : "no") },
              { id: "grace", header: "Grace", num: true, value: (one) => one.grace_seconds, cell: (one) => formatSeconds(one.grace_seconds) },
            ]} sort={[{ id: "rank", desc: false }]} />
          )}
        </Loaded>
      </Section>
      {dialog ? <PriceDialog close={() => setDialog(false)} /> : null}
    </Page>
  );
}
