declare module "*.css";
declare module "*/fans/wait_words.js" {
  interface Changed { reason: string; at: string }
  interface Told { state: string; position: number; range: [number, number | null] | null; changed: Changed | null }
  export const NOT_STARTED: string;
  export function estimateWords(told: Told): string;
  export function changeWords(changed: Changed | null): string;
}
