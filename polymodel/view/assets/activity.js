'use strict';
document.querySelectorAll('section.run').forEach(function (run) {
  var one = function (name) { return run.querySelector(name); };
  var bar = one('.bar'), range = one('input'), out = one('output'), now = one('.now'), play = one('.play');
  var parts = Array.from(run.querySelectorAll('[data-steps]')).map(function (part) {
    var steps = part.getAttribute('data-steps').split(' ').map(Number);
    return {part: part, steps: new Set(steps), made: part.hasAttribute('data-made') ? steps[0] : -1};
  });
  var words = Array.from(run.querySelectorAll('ol.steps li'));
  var last = Number(range.max), timer = null;
  function show() {
    var at = Number(range.value);
    parts.forEach(function (p) {
      p.part.classList.toggle('on', p.steps.has(at));
      p.part.classList.toggle('later', p.made > at);
    });
    words.forEach(function (li, number) { li.classList.toggle('on', number === at); });
    out.textContent = 'step ' + (at + 1) + ' of ' + (last + 1);
    now.textContent = words[at] ? words[at].firstChild.textContent : '';
  }
  function go(to) { range.value = Math.max(0, Math.min(last, to)); show(); }
  function stop() { clearInterval(timer); timer = null; play.textContent = 'Play'; }
  function start() {
    if (Number(range.value) >= last) { go(0); }
    play.textContent = 'Pause';
    timer = setInterval(function () {
      if (Number(range.value) >= last) { stop(); } else { go(Number(range.value) + 1); }
    }, 900);
  }
  range.addEventListener('input', show);
  play.addEventListener('click', function () { if (timer === null) { start(); } else { stop(); } });
  one('.back').addEventListener('click', function () { stop(); go(Number(range.value) - 1); });
  one('.next').addEventListener('click', function () { stop(); go(Number(range.value) + 1); });
  run.addEventListener('keydown', function (event) {
    var at = Number(range.value), moves = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last};
    if (event.target === range || event.target.hasAttribute('tabindex') || !(event.key in moves)) { return; }
    event.preventDefault();
    stop();
    go(moves[event.key]);
  });
  bar.hidden = false;
  run.classList.add('live');
  show();
});
