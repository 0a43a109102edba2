// What an operator is told when a request fails, and what their role may do.
import { Problem } from "./api";
import { session } from "./live";

export const asProblem = (failed: unknown): Problem =>
  failed instanceof Problem ? failed : new Problem(0, "The page has failed", String(failed));

const RANKS = ["viewer", "operator", "admin"];
export const may = (role: "operator" | "admin"): boolean =>
  RANKS.indexOf(session.value?.role ?? "viewer") >= RANKS.indexOf(role);

export const whyNot = (role: "operator" | "admin"): string =>
  `You are signed in as ${session.value?.role ?? "viewer"}. This needs the role ${role}.`;

export function ProblemText({ problem }: { problem: Problem | null }) {
  if (!problem) return null;
  return (
    <div class="outcome bad" role="alert" data-problem={problem.status}>
      <b>{problem.title}</b>
      {problem.detail && <p>{problem.detail}</p>}
      {problem.status === 403 && <p>You are signed in as {session.value?.name}, {session.value?.role}.</p>}
      {problem.retryAfterS !== null && <p>Try again in {Math.ceil(problem.retryAfterS)} s.</p>}
    </div>
  );
}
