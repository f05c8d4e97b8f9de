package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // what is shown may come as such
	"image/png"
	"strings"

	"github.com/mattn/go-sixel"
	"golang.org/x/image/draw"
)

// The bounds of what is shown. An image is from a sandbox: it may have few bytes and claim any
// size.
const (
	maxPixels     = 16 << 20 // of what is decoded
	maxCharts     = 50       // of one run; what is beyond is saved
	usualWidth    = 800      // pixels of a window that does not tell its size
	usualHeight   = 600
	largestWindow = 4000 // pixels in either direction
)

// protocol is a way in which terminals take images.
type protocol string

// The protocols, best first.
const (
	noImages protocol = ""
	kitty    protocol = "kitty" // https://sw.kovidgoyal.net/kitty/graphics-protocol
	iterm    protocol = "iterm" // https://iterm2.com/documentation-images.html
	sixels   protocol = "sixel" // of the VT340
)

// graphics is how a terminal takes images. The zero value is one that does not.
type graphics struct {
	protocol      protocol
	width, height int // of its window, in pixels; 0: not known
}

// errTooLarge says that an image has more pixels than are decoded.
var errTooLarge = fmt.Errorf("more than %d pixels", maxPixels)

// draw returns what a terminal shows as the image that data is, in PNG or GIF. Nothing of data
// itself goes to the terminal: the image is decoded, made to fit the window, and encoded anew.
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

// kittyImage puts an image into pieces of the size that the protocol wants. q=2: the terminal does
// not answer, which would be taken for input.
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
	if b := picture.Bounds(); b.Empty() || b.Dy() > maxPixels/b.Dx() { // the first image of a GIF has a size of its own
		return nil, errTooLarge
	}
	return picture, nil
}

// fit makes an image at most as large as a window. Charts are drawn for paper: what is transparent
// becomes white.
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

// drawable are the media types that draw takes. The work of decoding them is bounded by their
// pixels. That of JPEG is not: a small file may have any number of passes over all pixels.
var drawable = map[string]bool{"image/png": true, "image/gif": true}

// withinMultiplexer reports whether a terminal multiplexer is between this program and the
// terminal: what the environment says of the terminal does not hold for it.
func withinMultiplexer(getenv func(string) string) bool {
	name := getenv("TERM")
	return getenv("TMUX") != "" || getenv("STY") != "" || strings.HasPrefix(name, "tmux") || strings.HasPrefix(name, "screen")
}
