// What the page uses of marked.
export {parse} from "marked"
