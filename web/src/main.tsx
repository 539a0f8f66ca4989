import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { createRoot } from "react-dom/client";
import { shouldRetry } from "./api/queries";
import { makeRouter } from "./router";
import { watchTheme } from "./ui/preferences";
import "uplot/dist/uPlot.min.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/parts.css";
import "./styles/charts.css";

watchTheme();
const queries = new QueryClient({
  defaultOptions: { queries: { retry: shouldRetry, staleTime: 1_000, refetchOnWindowFocus: true, networkMode: "always" }, mutations: { networkMode: "always" } },
});
const root = document.getElementById("root");
if (!root) throw new Error("index.html has the element #root");
createRoot(root).render(
  <QueryClientProvider client={queries}>
    <RouterProvider router={makeRouter()} />
  </QueryClientProvider>,
);
