package server

import (
	"net/http"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
)

// ExperimentList is what the arms of each route with a split have done.
type ExperimentList struct {
	Experiments []rollout.Experiment `json:"experiments"`
}

// experiments answers operators only: the figures are those of the users of all keys.
func (s *Server) experiments(_ http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	if !c.Operator {
		return 0, nil, notOperator()
	}
	list := ExperimentList{Experiments: []rollout.Experiment{}}
	if s.cfg.Experiments == nil {
		return http.StatusOK, list, nil
	}
	all, err := s.cfg.Experiments(r.Context())
	if err != nil {
		return 0, nil, err
	}
	list.Experiments = append(list.Experiments, all...)
	return http.StatusOK, list, nil
}

func notOperator() *Problem {
	return &Problem{Status: http.StatusForbidden, Kind: executor.KindName(executor.ErrDenied), Ran: executor.RanNo.String(), Message: "the key is not that of an operator"}
}
