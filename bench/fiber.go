package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/valyala/fasthttp"
)

// fiberApp calls fiber's handler without a socket. Its store in memory can't be
// closed, so there is one for all rounds, and keys go on where they were; it
// forgets them soon, as far as they are not for replays.
func fiberApp(protected bool, key func(int) string) func(*stage) (func(int) error, error) {
	calls := 0
	handler := sync.OnceValue(func() fasthttp.RequestHandler {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		if protected {
			lifetime := 30 * time.Minute
			if key(0) != key(1) {
				lifetime = time.Second
			}
			app.Use(idempotency.New(idempotency.Config{KeyHeader: keyHeader, Lifetime: lifetime}))
		}
		app.Post("/charges", func(c *fiber.Ctx) error {
			c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
			return c.Status(http.StatusCreated).SendString(answerBody)
		})
		return app.Handler()
	})
	return func(*stage) (func(int) error, error) {
		h := handler()
		return func(int) error { // one caller
			calls++
			var ctx fasthttp.RequestCtx
			ctx.Request.Header.SetMethod(http.MethodPost)
			ctx.Request.SetRequestURI("/charges")
			ctx.Request.Header.SetContentType("application/json")
			ctx.Request.Header.Set(keyHeader, key(calls))
			ctx.Request.SetBodyString(requestBody)
			h(&ctx)
			if got := ctx.Response.StatusCode(); got != http.StatusCreated || len(ctx.Response.Body()) != len(answerBody) {
				return fmt.Errorf("the answer was %d", got)
			}
			return nil
		}, nil
	}
}
