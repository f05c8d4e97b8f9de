package browsertest

import (
	"math/rand/v2"
	"strings"
)

// document is what code shows.
type document struct{ MIME, Text string }

// What a browser fetches when it parses a document, and what it connects to when it parses HTML. No
// policy of a page stops a connection that is only made ahead.
var (
	ends = []string{
		`<link rel="preconnect" href="https://HOST">`, `<link rel=preconnect href=//HOST/>`, `<link rel="dns-prefetch" href="https://HOST">`,
		`<div><link rel="preconnect" href="https://HOST">`, `<img><link rel="preconnect dns-prefetch" href="http://HOST">`,
	}
	others = []string{
		`<meta http-equiv="refresh" content="0; url=https://HOST">`, `<a href="https://HOST" ping="https://HOST" target="_top">x</a>`,
		`<form action="https://HOST"><button>x</button></form>`, `<base href="https://HOST"><img src="x">`, `<img src="https://HOST" srcset="https://HOST 2x">`,
		`<iframe src="https://HOST"></iframe>`, `<object data="https://HOST"></object>`, `<image href="https://HOST" />`, `<use href="https://HOST#x" />`,
		`<feImage href="https://HOST" />`, `<style>@import "https://HOST"; * { background: url("https://HOST") }</style>`, `<p style='background: url("https://HOST")'>x</p>`,
		`<body background="https://HOST">`, `<script>fetch("https://HOST")</script>`, `<img src=x onerror='fetch("https://HOST")'>`,
		`<img src="data:image/svg+xml,` + image + `">`, `<style>* { background: url("data:image/svg+xml,` + image + `") }</style>`,
	}
)

// image is a picture with HTML that connects, in the form of a URL.
const image = `%3Csvg xmlns='http://www.w3.org/2000/svg'%3E%3CforeignObject%3E%3Clink xmlns='http://www.w3.org/1999/xhtml' rel='preconnect' href='https://HOST'/%3E%3C/foreignObject%3E%3C/svg%3E`

// steps change what a parser makes of what follows. Each is HTML, with a point between what may
// stand alone.
var steps = strings.Split("<math>·<svg>·<mtext>·<mi>·<ms>·<mglyph>·<malignmark>·<annotation-xml encoding=text/html>·<annotation-xml>·<foreignObject>·<desc>·<title>·<style>·"+
	"</style>·</title>·</desc>·</foreignObject>·</mtext>·</math>·</svg>·</p>·</br>·</form>·</table>·</select>·</template>·</noscript>·"+
	"<table>·<caption>·<colgroup>·<tbody>·<tr>·<td>·<p>·<div>·<span>·<b>·<nobr>·<a>·<font color=x>·<font>·<button>·<h1>·<ul><li>·<dl><dt>·<pre>·\n·"+
	"<form>·<form id=x><input name=attributes><input name=parentNode>·<select>·<option>·<textarea>·<template>·<template shadowrootmode=open>·<noscript>·<xmp>·<listing>·<plaintext>·"+
	"<noembed>·<noframes>·<iframe>·<object>·<marquee>·<head>·<body>·<html>·<frameset>·<image>·<input>·<hr>·<x-y>·<ruby><rt>·<details><summary>·<dialog open>·"+
	"<!--·-->·--!>·<!-->·<![CDATA[·]]>·<?x ·<!x>·</ >·&lt;·&#60;·\x00·text·<img name=body>·<a name=innerHTML>", "·")

// shapes are documents that sanitisers of others let through, with END for what they were to hide.
var shapes = []string{
	`<math><mtext><table><mglyph><style><div>END`,
	`<math><mtext><table><mglyph><style>END`,
	`<math><mtext><table><mglyph><style><!--</style><img title="--&gt;END">`,
	`<form><math><mtext></form><form><mglyph><style></math>END`,
	`<svg></p><style><a id="</style>END">`,
	`<svg><p><style><a id="</style>END">`,
	`<math></p><style><!--</style>END--></style>`,
	`<math><mi><p><style></math>END`,
	`<noscript><p title="</noscript>END">`,
	`<svg><title><![CDATA[</title>END]]>`,
	`<svg><desc><![CDATA[</desc>END]]>`,
	`<svg><annotation-xml encoding="text/html"><style>END`,
	`<math><annotation-xml encoding="text/html"><xmp>&lt;/xmp>END`,
	`<svg><foreignObject><math><mi><table><mi><style><!--</style><p title="-->END">`,
	`<table><caption><svg><desc><table><caption></caption></table></desc><style><a title="</style>END">`,
	`<p><table><p><svg><style><a title="</style>END"></style></svg>`,
	`<xmp><p title="</xmp>END">`,
	`<template><xmp><p title="</xmp>END"></xmp></template>`,
	`<select><svg><style><a title="</style>END">`,
	`<textarea><p title="</textarea>END">`,
	`<!--><p title="-->END">`,
	`<!-- --!>END -->`,
	`<![CDATA[<p title="]]>END">]]>`,
	`<a><table><a><svg><style><b title="</style>END">`,
	`<svg><style>&lt;/style>END`,
	`<math><style>&lt;/style>END`,
	`<noembed><p title="</noembed>END">`,
	`<iframe><p title="</iframe>END">`,
	`<form id=f><div></form><form><svg><style>END`,
	`<svg><font color=x><style>END`,
}

// nestings returns n documents in which HTML, SVG and MathML are nested: the shapes, and what
// chance makes of the steps and of them. host returns the host that document i is to reach. The
// same n makes the same documents.
func nestings(n int, host func(i int) string) (all []document) {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	end := func() string {
		if r.IntN(4) == 0 {
			return pick(others)
		}
		return pick(ends)
	}
	for i := range n {
		var text string
		switch {
		case i < len(shapes):
			text = strings.Replace(shapes[i], "END", ends[0], 1)
		case i%3 == 0: // a shape among steps
			shape := strings.Replace(pick(shapes), "END", end(), 1)
			for range r.IntN(3) { // one of its tags is replaced, or another put before it
				tags := strings.SplitAfter(shape, ">")
				at := r.IntN(len(tags))
				tags[at] = pick(steps) + strings.Repeat(tags[at], r.IntN(2))
				shape = strings.Join(tags, "")
			}
			text = pick(steps) + shape
		default:
			for range 2 + r.IntN(7) {
				text += pick(steps)
			}
			if last := end(); r.IntN(3) == 0 { // in an attribute, after the end of something
				text += `<p title="` + pick([]string{"</style>", "</title>", "-->", "--!>", "]]>", "</xmp>", "</textarea>", "</noscript>", "</svg>", "</math>"}) + strings.ReplaceAll(last, `"`, "'") + `">`
			} else {
				text += last
			}
		}
		if r.IntN(100) == 0 { // deeper than parsers nest
			text = strings.Repeat(pick([]string{"<div>", "<b>", "<svg><desc>", "<math><mi>"}), 100+r.IntN(500)) + text
		}
		mime := "text/html"
		switch {
		case i%7 == 5:
			mime = "text/markdown"
		case i%7 == 6:
			mime, text = "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg">`+text
		}
		all = append(all, document{mime, strings.ReplaceAll(text, "HOST", host(i))})
	}
	return all
}
