// One thing that is wrong.

export interface Problem {
  tone: "bad" | "warn" | "note";
  /** The version it is about; none for the server or the machine. */
  model: string | null;
  what: string;
  /** What to do about it, or where to look. */
  advice: string;
}

/** The same, said about a version that is known. */
export type About = Omit<Problem, "model">;
