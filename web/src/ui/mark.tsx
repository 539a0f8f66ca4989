/** The mark of the program. */
export const Mark = () => (
  <svg className="mark-of-bursar" viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="3" fill="var(--accent)" /><path d="M4.300 3.500h4.200a2.200 2.200 0 0 1 0 4.400H4.300zM4.300 7.900h4.900a2.300 2.300 0 0 1 0 4.600H4.300z" fill="none" stroke="var(--on-accent)" strokeWidth="1.600" /></svg>
);
