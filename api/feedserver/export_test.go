package feedserver

import (
	"net/http"

	"rutter/api/internal/apitest"
)

// SetAPI sets how tests make the API over a store.
func SetAPI(of func(*apitest.Memory) (http.Handler, error)) { newAPI = of }
