"""One page: the orders so far, and a form for the next."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from example_project.shop.models import Order
from example_project.shop.orders import place


class OrderForm(forms.Form):
    customer = forms.EmailField()
    item = forms.CharField(max_length=200)


@require_http_methods(["GET", "POST"])
def orders(request: HttpRequest) -> HttpResponse:
    """Show the last orders; place one on POST."""
    form = OrderForm(request.POST or None)
    if form.is_valid():
        place(form.cleaned_data["customer"], form.cleaned_data["item"])
        return redirect("orders")
    last = Order.objects.order_by("-pk")[:20]
    return render(request, "shop/orders.html", {"form": form, "orders": last})
