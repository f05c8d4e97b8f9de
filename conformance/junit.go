package conformance

import (
	"encoding/xml"
	"io"
	"strings"
)

// The elements of JUnit XML that servers for continuous integration read.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       float64         `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    float64       `xml:"time,attr"`
		Failure *junitFinding `xml:"failure"`
		Error   *junitFinding `xml:"error"`
		Skipped *junitFinding `xml:"skipped"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitFinding struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
	}
)

// JUnit renders a report as JUnit XML. A hole is a failure there, because its readers count what is
// skipped as green; only what does not apply, was not selected, or is known to fail is skipped.
func (r *Report) JUnit(w io.Writer) error {
	s := junitSuite{
		Name: "conformance of " + r.Implementation.Name + " " + r.Implementation.Version, Tests: len(r.Cases),
		Timestamp: r.Date.Format("2006-01-02T15:04:05"),
		Properties: []junitProperty{
			{"suite", r.Suite},
			{"mode", string(r.Mode)},
			{"backend", r.Info.Name},
			{"platform", r.Platform},
			{"go", r.Go},
		},
	}
	for _, l := range r.Cases {
		c := junitCase{Class: l.area(), Name: l.ID, Time: float64(l.Millis) / 1000, Out: strings.Join(l.Log, "\n")}
		if l.Language != "" {
			c.Class = string(l.Language) + "." + c.Class
		}
		f := &junitFinding{Message: l.Reason, Type: string(l.Outcome)}
		switch {
		case l.Outcome == Passed || l.Outcome == Refused:
		case l.Outcome == Errored:
			c.Error = f
			s.Errors++
		case l.Skipped():
			c.Skipped = f
			s.Skipped++
		default:
			c.Failure = f
			s.Failures++
		}
		s.Time += c.Time
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suites: []junitSuite{s}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
