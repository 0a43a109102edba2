"use strict";(()=>{var c=document.currentScript??document.querySelector('script[src$="/embed.js"]'),d=new URL(c.src).origin,r=/^#[0-9a-f]{6}$/i,u=60,m=500,s={width:480,height:860},l=new CSSStyleSheet;l.replaceSync(`
:host { display: inline-block; max-width: 100%; }
:host([hidden]) { display: none; }
a {
  display: inline-flex; align-items: center; justify-content: center; box-sizing: border-box; min-height: 2.75em; padding: .5em 1.5em;
  border-radius: .7em; background: var(--onsale-accent, var(--light)); color: var(--onsale-on-accent, #fff); font-weight: 650;
  text-decoration: none; overflow-wrap: anywhere;
}
@supports (color: light-dark(red, red)) {
  a {
    background: var(--onsale-accent, light-dark(var(--light), var(--dark)));
    color: var(--onsale-on-accent, light-dark(#fff, #15152b));
  }
}
a:hover { filter: brightness(1.1); }
a:focus-visible { outline: 3px solid; outline-color: Highlight; outline-offset: 3px; }
p { margin: .4em 0 0; font-size: .875em; }
p:empty { display: none; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (forced-colors: active) { a { border: 1px solid; } }
`);var o=class extends HTMLElement{static observedAttributes=["event","lang"];#t=document.createElement("a");#o=document.createElement("span");#a=document.createElement("span");#e=document.createElement("p");#n=0;#i=null;constructor(){super();let t=this.attachShadow({mode:"open"});t.adoptedStyleSheets=[l],this.#e.id="status",this.#a.className="unseen",this.#t.setAttribute("aria-describedby","status"),this.#t.setAttribute("part","button"),this.#e.setAttribute("part","status"),this.#h("#4240b8","#a9a8ff"),this.#t.append(this.#o,this.#a),this.#t.addEventListener("click",e=>this.#d(e)),t.append(this.#t,this.#e)}connectedCallback(){this.#s()}disconnectedCallback(){clearTimeout(this.#n)}attributeChangedCallback(){this.isConnected&&this.#s()}get#r(){let t=this.getAttribute("lang");return`${d}/e/${encodeURIComponent(this.getAttribute("event")??"")}${t?`?lang=${encodeURIComponent(t)}`:""}`}async#s(){clearTimeout(this.#n),this.#t.href=this.#r,this.#o.textContent=this.textContent.trim()||"🎟️";let[t,e=""]=this.#r.split("?"),n=document.hidden?null:await fetch(`${t}/button.json?${e}`,{credentials:"omit"}).then(i=>i.ok?i.json():null).catch(()=>null);this.isConnected&&(n?this.#c(n):document.hidden||(this.#e.textContent=""),clearTimeout(this.#n),this.#n=setTimeout(()=>this.#s(),(n?.poll_after_s??u)*1e3*(.8+Math.random()*.4)))}#c(t){this.dataset.state=t.state??"",this.#o.textContent=this.textContent.trim()||t.label,this.#a.textContent=h()?` (${t.window})`:"",this.#e.textContent=t.at?t.status.replace("{moment}",p(t.at,this.lang||void 0)):t.status,this.#e.dir=t.direction,t.accent&&this.#h(t.accent,t.accent_dark)}#h(t,e){!r.test(t)||!r.test(e)||(this.#t.style.setProperty("--light",t),this.#t.style.setProperty("--dark",e))}#d(t){if(t.button||t.ctrlKey||t.metaKey||t.shiftKey||t.altKey||!h())return;if(this.#i&&!this.#i.closed){t.preventDefault(),this.#i.focus();return}let e=Math.max(0,screenX+(outerWidth-s.width)/2),n=open("","",`popup,width=${s.width},height=${s.height},left=${e},top=${screenY}`);if(!n)return;t.preventDefault(),n.opener=null,n.location.href=this.#r,this.#i=n,this.#l("onsale:opened");let i=setInterval(()=>{n.closed&&(clearInterval(i),this.#l("onsale:closed"),this.#s())},m)}#l(t){this.dispatchEvent(new CustomEvent(t,{bubbles:!0,detail:{event:this.getAttribute("event")}}))}},h=()=>matchMedia("(min-width: 40rem) and (any-pointer: fine)").matches;function p(a,t){let e={weekday:"short",day:"numeric",month:"short",hour:"numeric",minute:"2-digit",timeZoneName:"short"};return new Date(a).toLocaleString(t,e)}customElements.get("onsale-button")||customElements.define("onsale-button",o);})();
