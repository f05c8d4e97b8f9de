package e2b

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

// formBuffer is how much of a form is read at once.
const formBuffer = 64 << 10

// formEscapes are what browsers escape in names of files, and nothing else.
var formEscapes = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n")

// eachPart calls f for the files in a form, with their names as they were sent: multipart.Part has
// only the last elements.
func eachPart(body io.Reader, boundary string, f func(name string, data io.Reader) error) error {
	if boundary == "" {
		return refuse(http.StatusBadRequest, "Content-Type: the boundary is missing")
	}
	m := multipart.NewReader(bufio.NewReaderSize(body, formBuffer), boundary) // which reads 4 KiB at a time
	for n := 0; ; n++ {
		p, err := m.NextRawPart()
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, new(*http.MaxBytesError)):
			return err
		case err != nil:
			return refuse(http.StatusBadRequest, "the form: %v", err)
		case n >= maxParts:
			return refuse(http.StatusRequestEntityTooLarge, "the form has more than %d parts", maxParts)
		case p.FormName() != "file":
			continue
		}
		_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if err != nil {
			return refuse(http.StatusBadRequest, "the form: Content-Disposition: %v", err)
		}
		if err := f(formEscapes.Replace(params["filename"]), p); err != nil {
			return err
		}
	}
}
