// What the page uses of markdown-it.
export {default} from "markdown-it"
