/* Small helps that nothing depends on: copy a key, and press a button once. */
"use strict";
{
    const labels = { copy: "copy", done: "copied" };
    for (const code of document.querySelectorAll("[data-outbox-copy]")) {
        // Only a page served over HTTPS, or from this machine, may write the clipboard.
        if (!navigator.clipboard) { break; }
        const button = document.createElement("button");
        button.type = "button";
        button.className = "outbox-copy";
        button.textContent = labels.copy;
        button.addEventListener("click", () => {
            navigator.clipboard.writeText(code.textContent).then(() => {
                button.textContent = labels.done;
            });
        });
        code.after(button);
    }
    for (const form of document.querySelectorAll("form.outbox-form")) {
        form.addEventListener("submit", (event) => {
            if (form.dataset.sent) { event.preventDefault(); }
            form.dataset.sent = "1";
        });
    }
    // A page that the browser shows again from its memory may be sent again.
    window.addEventListener("pageshow", () => {
        for (const form of document.querySelectorAll("form.outbox-form")) {
            delete form.dataset.sent;
        }
    });
}
