/** Every page with an address that shows real data. */
export function addresses(job: string): Record<string, string> {
  return {
    "home-researcher": "/?as=researcher&account=acme:nlp",
    "home-lead": "/?as=lead&account=acme",
    "home-finance": "/?as=finance&account=acme",
    "home-operator": "/?as=operator",
    credits: "/credits?account=acme:nlp",
    spend: "/spend?account=acme",
    budgets: "/budgets?account=acme:nlp",
    jobs: "/jobs",
    job: `/jobs/${job}`,
    queue: "/queue?region=eu",
    share: "/share?region=eu",
    cluster: "/cluster?region=eu",
    audit: "/audit",
    "audit-cell": "/audit?machine=cell-eu",
    "audit-directory": "/audit?machine=directory",
    support: `/support?q=${job}`,
    accounts: "/accounts",
    prices: "/prices",
    keys: "/keys",
    members: "/members",
    settings: "/settings",
  };
}
