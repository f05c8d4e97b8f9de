package tool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Answer is an Output in the form in which models take it: readable text, and images apart from it.
// Its methods return both in the formats of the common model APIs.
type Answer struct {
	Text   string  // the output, the value, the names of files, and the error
	Failed bool    // the code did not succeed
	Images []Image // PNG, JPEG, GIF or WebP
}

// maxFileText is how much of a file an Answer contains, in bytes.
const maxFileText = 64 << 10

// ForModel returns o in the form in which models take it. The text is not encoded: it has no JSON
// escapes and no base64. It names files with their types and sizes. The contents of files whose
// names match one of the patterns, as in path.Match, are included: text in Answer.Text, up to 64
// KiB of each file, and images in Answer.Images. A malformed pattern matches nothing.
func (o Output) ForModel(files ...string) Answer {
	a := Answer{Failed: !o.Success}
	var b strings.Builder
	section := func(name, text string) {
		if text = strings.TrimRight(text, "\n"); text != "" {
			if b.Len() > 0 {
				b.WriteString("\n\n")
			}
			b.WriteString(name + ":\n" + text)
		}
	}
	if o.Success && o.Stderr == "" && o.ReturnValue == nil && len(o.Images) == 0 && len(o.Files) == 0 {
		if a.Text = strings.TrimRight(o.Stdout, "\n"); a.Text == "" {
			a.Text = "The code ran to its end and printed nothing."
		}
		return a
	}
	section("stdout", o.Stdout)
	section("stderr", o.Stderr)
	section("value", o.valueText())
	var lines []string
	for i, image := range o.Images {
		line := fmt.Sprintf("%d. %s, %d bytes", i+1, image.Type, len(image.Base64))
		if takenImage(image.Type) {
			a.Images = append(a.Images, image)
		} else {
			line += ", which models do not take"
		}
		if image.File != "" {
			line += ", the file " + image.File
		}
		lines = append(lines, line)
	}
	section("images", strings.Join(lines, "\n"))
	lines = nil
	for _, f := range o.Files {
		lines = append(lines, fmt.Sprintf("- %s (%s, %d bytes)", f.Name, f.Type, f.Size))
	}
	section("files", strings.Join(lines, "\n"))
	for _, f := range o.Files {
		if !slices.ContainsFunc(files, func(pattern string) bool {
			ok, err := path.Match(pattern, UnquoteName(f.Name))
			return ok && err == nil
		}) {
			continue
		}
		if at := slices.IndexFunc(o.Images, func(i Image) bool { return i.File == f.Name }); at >= 0 && f.Base64 == nil {
			if takenImage(f.Type) {
				section("file "+f.Name, "[attached as an image]")
				continue
			}
			f.Base64 = o.Images[at].Base64
		}
		switch {
		case int64(len(f.Base64)) != f.Size:
			section("file "+f.Name, "[the content is too large]")
		case takenImage(f.Type) && isImage(f.Type, f.Base64):
			section("file "+f.Name, "[attached as an image]")
			a.Images = append(a.Images, Image{Type: f.Type, Base64: f.Base64})
		case utf8.Valid(f.Base64) && !bytes.ContainsRune(f.Base64, 0):
			section("file "+f.Name, cut(string(f.Base64), maxFileText))
		default:
			section("file "+f.Name, "[the content is not text]")
		}
	}
	section("error", o.Error)
	a.Text = b.String()
	return a
}

// valueText returns the value of the last expression: text unchanged, and data as JSON.
func (o Output) valueText() string {
	switch v := o.ReturnValue.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if e.Encode(v) != nil { // possible only for a value that the caller has made
			return "[a value that JSON does not have]"
		}
		return b.String()
	}
}

// takenImage reports whether models accept images of a type. They do not accept SVG.
func takenImage(mime string) bool {
	return mime == "image/png" || mime == "image/jpeg" || mime == "image/gif" || mime == "image/webp"
}

// OpenAIPart is a part of a message of OpenAI's chat completions.
type OpenAIPart struct {
	Type     string          `json:"type"` // "text" or "image_url"
	Text     string          `json:"text,omitempty"`
	ImageURL *OpenAIImageURL `json:"image_url,omitempty"`
}

// OpenAIImageURL is an image within an OpenAIPart.
type OpenAIImageURL struct {
	URL string `json:"url"` // a data URL
}

// OpenAI returns the content of the tool's message for chat completions. That API accepts images
// from users only, so OpenAI also returns the content of a user's message, to be sent after the
// messages of all tools. It is nil if there are no images.
func (a Answer) OpenAI() (toolMessage string, userMessage []OpenAIPart) {
	for _, i := range a.Images {
		if userMessage == nil {
			userMessage = []OpenAIPart{{Type: "text", Text: "Images from the tool:"}}
		}
		userMessage = append(userMessage, OpenAIPart{Type: "image_url", ImageURL: &OpenAIImageURL{i.dataURL()}})
	}
	return a.Text, userMessage
}

// OpenAIResponsesPart is a part of the output of a function call of OpenAI's responses API.
type OpenAIResponsesPart struct {
	Type     string `json:"type"` // "input_text" or "input_image"
	Text     string `json:"text,omitempty"`
	ImageURL string `json:"image_url,omitempty"` // a data URL
	Detail   string `json:"detail,omitempty"`    // for an image: "auto"
}

// OpenAIResponses returns the output of a function_call_output item for the responses API.
func (a Answer) OpenAIResponses() []OpenAIResponsesPart {
	parts := []OpenAIResponsesPart{{Type: "input_text", Text: a.Text}}
	for _, i := range a.Images {
		parts = append(parts, OpenAIResponsesPart{Type: "input_image", ImageURL: i.dataURL(), Detail: "auto"})
	}
	return parts
}

// AnthropicPart is a block of content of Anthropic's messages API.
type AnthropicPart struct {
	Type   string           `json:"type"` // "text" or "image"
	Text   string           `json:"text,omitempty"`
	Source *AnthropicSource `json:"source,omitempty"`
}

// AnthropicSource is the image of an AnthropicPart.
type AnthropicSource struct {
	Type      string `json:"type"` // "base64"
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
}

// Anthropic returns the content of a tool_result block for the messages API, whose is_error is
// Answer.Failed.
func (a Answer) Anthropic() []AnthropicPart {
	parts := []AnthropicPart{{Type: "text", Text: a.Text}}
	for _, i := range a.Images {
		parts = append(parts, AnthropicPart{Type: "image", Source: &AnthropicSource{"base64", i.Type, i.Base64}})
	}
	return parts
}

// GeminiResponse is the field "response" of a functionResponse of Gemini's API.
type GeminiResponse struct {
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

// GeminiPart is a part of a content of Gemini's API.
type GeminiPart struct {
	Text       string      `json:"text,omitempty"`
	InlineData *GeminiBlob `json:"inlineData,omitempty"`
}

// GeminiBlob is the image of a GeminiPart.
type GeminiBlob struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

// Gemini returns the response of a functionResponse, and the parts to send after it in the same
// content: the images, except GIF, which that API refuses. The parts are nil if there are none.
func (a Answer) Gemini() (response GeminiResponse, parts []GeminiPart) {
	if response.Output = a.Text; a.Failed {
		response = GeminiResponse{Error: a.Text}
	}
	for _, i := range a.Images {
		if i.Type == "image/gif" {
			parts = append(parts, GeminiPart{Text: "[An image of the type image/gif cannot be shown.]"})
			continue
		}
		parts = append(parts, GeminiPart{InlineData: &GeminiBlob{i.Type, i.Base64}})
	}
	return response, parts
}

// dataURL returns the image as a data URL.
func (i Image) dataURL() string {
	return "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Base64)
}
