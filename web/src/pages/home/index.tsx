import { PERSONS, personOf, type Person } from "../../api/session";
import { visible } from "../../format";
import { useSession } from "../../ui/context";
import { Choice, Page } from "../../ui/page";
import { AccountPage } from "../../ui/noaccount";
import { usePreferences } from "../../ui/preferences";
import { useAccount, usePageSearch, useRegion } from "../../ui/search";
import { GrantDetails } from "../credits";
import { JobPanel } from "../jobs/panel";
import { PERSON_NAMES } from "../settings";
import { SupportPage } from "../support/index";
import { FinanceHome } from "./finance";
import { LeadHome } from "./lead";
import { OperatorHome } from "./operator";
import { ResearcherHome } from "./researcher";

/** The first page answers what this person asks. The address, the settings or the role decide. */
export function HomePage() {
  const session = useSession();
  const preferences = usePreferences();
  const [search, change] = usePageSearch();
  const account = useAccount();
  const region = useRegion();
  const chosen = PERSONS.find((person) => person === search.as);
  const person: Person = chosen ?? (preferences.person === "role" ? personOf(session) : preferences.person);
  if (person === "support") return <SupportPage />;
  const choice = <Choice label="View for" value={person} choices={PERSONS.map((one) => [one, PERSON_NAMES[one]] as const)} onChange={(value) => change({ as: value, open: undefined })} />;
  const page = () => (
    <Page
      title="Home" about={person === "operator" ? (region ? `Region ${visible(region)}` : "No region yet") : visible(account) || "No account yet"}
      panel={search.open ? (person === "lead" ? <GrantDetails id={search.open} /> : <JobPanel id={search.open} />) : undefined}
      actions={choice}
    >
      {person === "researcher" ? <ResearcherHome account={account} /> : null}
      {person === "lead" ? <LeadHome account={account} /> : null}
      {person === "finance" ? <FinanceHome account={account} /> : null}
      {person === "operator" ? <OperatorHome /> : null}
    </Page>
  );
  return person === "operator" ? page() : <AccountPage title="Home" actions={choice}>{page}</AccountPage>;
}
