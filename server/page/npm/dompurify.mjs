// What the page uses of DOMPurify.
export {default} from "dompurify"
