import { render } from "preact";
import "./styles.css";

render(<p>…</p>, document.getElementById("app")!);
