package page_test

import (
	"testing"

	"github.com/execbroker/execbroker/internal/front/fronttest"
	"github.com/execbroker/execbroker/server/page"
)

// The page may be part of another program, without the API.
func TestClients(t *testing.T) {
	fronttest.Clients(t, func(*testing.T) fronttest.Front {
		return fronttest.Front{Handler: page.Handler(), Refused: [][]string{{"POST /nothing"}}, Answers: [][]string{{"GET /"}, {"GET /page/index.html"}}}
	})
}
