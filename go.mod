module github.com/idem-go/idem

go 1.25.0

require (
	github.com/cenkalti/backoff/v4 v4.3.0
	github.com/google/uuid v1.6.0
	go.uber.org/goleak v1.3.0
	golang.org/x/net v0.44.0
)

require golang.org/x/text v0.29.0 // indirect
