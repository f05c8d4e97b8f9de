import { h } from 'vue'
import DefaultTheme from 'vitepress/theme-without-fonts'
import Versions from './Versions.vue'
import './style.css'

export default {
  extends: DefaultTheme,
  Layout: () =>
    h(DefaultTheme.Layout, null, {
      'nav-bar-content-after': () => h(Versions, { class: 'in-bar' }),
      'nav-screen-content-after': () => h(Versions, { class: 'in-screen' }),
    }),
}
