import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { createRoot } from "react-dom/client";
import { watchActivity } from "./api/client";
import { shouldRetry } from "./api/queries";
import { isPaused } from "./live/pause";
import { makeRouter } from "./router";
import { watchTheme } from "./ui/preferences";
import "uplot/dist/uPlot.min.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/parts.css";
import "./styles/charts.css";

watchTheme();
watchActivity();
const unlessPaused = () => !isPaused();
const queries = new QueryClient({
  defaultOptions: { queries: { retry: shouldRetry, staleTime: 1_000, refetchOnWindowFocus: unlessPaused, refetchOnReconnect: unlessPaused, networkMode: "always" }, mutations: { networkMode: "always" } },
});
const root = document.getElementById("root");
if (!root) throw new Error("index.html has the element #root");
createRoot(root).render(
  <QueryClientProvider client={queries}>
    <RouterProvider router={makeRouter()} />
  </QueryClientProvider>,
);
