// Package report writes what the arms of experiments have done, for people and for other tools:
// Markdown, one file of HTML with plots, and comma-separated values. Package backends has the
// figures.
//
// Names come from a configuration, so they are escaped in each of these.
package report
