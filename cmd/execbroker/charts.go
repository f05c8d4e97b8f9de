package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // images may be GIF
	"image/png"
	"strings"

	"github.com/mattn/go-sixel"
	"golang.org/x/image/draw"
)

// The limits of images. An image comes from a sandbox: it may have few bytes and claim any size.
const (
	maxPixels     = 16 << 20 // of an image that is decoded
	maxCharts     = 50       // images of one run; more are saved
	usualWidth    = 800      // width in pixels of a window of unknown size
	usualHeight   = 600
	largestWindow = 4000 // pixels in either direction
)

// protocol is a protocol for images on terminals.
type protocol string

// The protocols, in order of preference.
const (
	noImages protocol = ""
	kitty    protocol = "kitty" // https://sw.kovidgoyal.net/kitty/graphics-protocol
	iterm    protocol = "iterm" // https://iterm2.com/documentation-images.html
	sixels   protocol = "sixel" // of the VT340
)

// graphics says how a terminal shows images. The zero value is a terminal that cannot.
type graphics struct {
	protocol      protocol
	width, height int // size of its window in pixels; 0: not known
}

// errTooLarge says that an image has too many pixels to be decoded.
var errTooLarge = fmt.Errorf("more than %d pixels", maxPixels)

// draw returns the bytes that make a terminal show an image in PNG or GIF. No byte of data is sent
// to the terminal: the image is decoded, made to fit the window, and encoded again.
func (g graphics) draw(data []byte) ([]byte, error) {
	if g.protocol == noImages {
		return nil, errors.ErrUnsupported
	}
	picture, err := decodeImage(data)
	if err != nil {
		return nil, err
	}
	width, height := usualWidth, usualHeight
	if g.width > 0 && g.height > 0 {
		width, height = min(g.width, largestWindow), min(g.height, largestWindow)
	}
	picture = fit(picture, width, height)
	var out bytes.Buffer
	if g.protocol == sixels {
		err := sixel.NewEncoder(&out).Encode(picture)
		return append(out.Bytes(), '\n'), err
	}
	if err := png.Encode(&out, picture); err != nil {
		return nil, err
	}
	text := base64.StdEncoding.EncodeToString(out.Bytes())
	if g.protocol == iterm {
		return fmt.Appendf(nil, "\x1b]1337;File=inline=1;size=%d;preserveAspectRatio=1:%s\a\n", out.Len(), text), nil
	}
	return append(kittyImage(text), '\n'), nil
}

// kittyImage splits an image into pieces of the size that the protocol requires. q=2 means that the
// terminal must not answer, because the answer would be taken for input.
func kittyImage(text string) (out []byte) {
	const piece = 4096
	keys := "a=T,f=100,q=2,"
	for more := true; more; keys = "" {
		n := min(len(text), piece)
		more = n < len(text)
		out = fmt.Appendf(out, "\x1b_G%sm=%d;%s\x1b\\", keys, map[bool]int{true: 1}[more], text[:n])
		text = text[n:]
	}
	return out
}

// decodeImage decodes an image of a bounded number of pixels.
func decodeImage(data []byte) (image.Image, error) {
	cfg, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if cfg.Width <= 0 || cfg.Height <= 0 {
		return nil, errors.New("an image without pixels")
	}
	if cfg.Height > maxPixels/cfg.Width {
		return nil, errTooLarge
	}
	picture, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if b := picture.Bounds(); b.Empty() || b.Dy() > maxPixels/b.Dx() { // the first image of a GIF can have another size
		return nil, errTooLarge
	}
	return picture, nil
}

// fit scales an image down to the size of a window. Charts are drawn for paper, so transparent
// parts become white.
func fit(from image.Image, width, height int) image.Image {
	b := from.Bounds()
	w, h := b.Dx(), b.Dy()
	if w > width {
		w, h = width, max(1, h*width/w)
	}
	if h > height {
		w, h = max(1, w*height/h), height
	}
	to := image.NewNRGBA(image.Rect(0, 0, w, h))
	draw.Draw(to, to.Bounds(), image.White, image.Point{}, draw.Src)
	if w == b.Dx() && h == b.Dy() {
		draw.Draw(to, to.Bounds(), from, b.Min, draw.Over)
	} else {
		draw.BiLinear.Scale(to, to.Bounds(), from, b, draw.Over, nil)
	}
	return to
}

// drawable are the media types that draw accepts. Their number of pixels bounds the work of
// decoding them. That is not true for JPEG: a small file can have any number of passes over all
// pixels.
var drawable = map[string]bool{"image/png": true, "image/gif": true}

// withinMultiplexer reports whether a terminal multiplexer is between this program and the
// terminal. Then the environment variables about the terminal are not reliable.
func withinMultiplexer(getenv func(string) string) bool {
	name := getenv("TERM")
	return getenv("TMUX") != "" || getenv("STY") != "" || strings.HasPrefix(name, "tmux") || strings.HasPrefix(name, "screen")
}
