// The dashboard: one page that shows what the server tells, and asks it to change things.

import { render } from "preact";
import { state } from "./state";
import { App } from "./view/app";

const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(<App />, place);
  state.start();
}
