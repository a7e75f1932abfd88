package canon_test

import (
	"fmt"
	"reflect"

	"github.com/idem-go/idem/internal/canon"
)

func ExampleJSON() {
	a := canon.JSON([]byte(`{"amount": 10, "currency": "EUR"}`))
	fmt.Println(a == canon.JSON([]byte(`{"currency":"EUR","amount":10}`)))
	fmt.Println(a == canon.JSON([]byte(`{"currency":"EUR","amount":10.0}`)))
	// Output:
	// true
	// false
}

func ExampleHTTP() {
	r := canon.Request{Method: "POST", Path: "/orders", ContentType: "application/json", Body: []byte(`{"a":1,"b":2}`)}
	first := canon.HTTP(r)
	r.Body = []byte(`{"b":2,"a":1}`)
	fmt.Println(first == canon.HTTP(r))
	r.Path = "/orders/7/cancel"
	fmt.Println(first == canon.HTTP(r))
	// Output:
	// true
	// false
}

func ExampleValue() {
	//lint:ignore U1000 that it can not be seen is what is shown
	type Item struct{ token string }
	type Order struct{ Items []Item }
	_, err := canon.Value(Order{})
	fmt.Println(err)
	// Output: Order.Items[].token: unexported, so its JSON hides it
}

func ExampleCheckResult() {
	type Receipt struct{ Details any }
	fmt.Println(canon.CheckResult(reflect.TypeFor[Receipt]()))
	// Output: Receipt.Details: interface {} is an interface, and JSON does not say what it held
}
