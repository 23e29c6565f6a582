'use strict';
// Any two columns of a table with figures as a scatter plot, of the rows that its filter leaves; and a closer look at
// every plot. Nothing is fetched: the points are those that stand in the table.
(function () {
  var FEW = 5; // rows of a table that need no plot
  var MOST = 5000; // points that are drawn
  var SVG = 'http://www.w3.org/2000/svg';
  var WIDE = 720, HIGH = 380, LEFT = 84, RIGHT = 16, TOP = 12, BELOW = 46;
  var PREFIXES = ['a', 'f', 'p', 'n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];

  function made(name, text, attributes) {
    var element = document.createElement(name);
    if (text) { element.textContent = text; }
    Object.keys(attributes || {}).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    return element;
  }

  function drawn(name, attributes, text) {
    var element = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    if (text) { element.textContent = text; }
    return element;
  }

  function engineering(value, unit) {
    var power = value ? Math.floor(Math.log10(Math.abs(value)) / 3 + 1e-9) : 0;
    power = Math.max(-6, Math.min(6, power));
    var scaled = Number((value / Math.pow(1000, power)).toPrecision(4));
    return scaled + (unit || power ? ' ' : '') + PREFIXES[power + 6] + unit;
  }

  // Places of ticks between two ends: at 1, 2 or 5 times a power of ten; on a logarithmic axis at powers of ten.
  function ticks(low, high, log) {
    var found = [], at;
    if (log && Math.log10(high / low) >= 2) {
      var every = Math.ceil(Math.log10(high / low) / 8);
      for (at = Math.ceil(Math.log10(low) - 1e-9); at <= Math.log10(high) + 1e-9; at += every) {
        found.push(Math.pow(10, at));
      }
      return found;
    }
    var step = Math.pow(10, Math.floor(Math.log10((high - low) / 5)));
    step *= [1, 2, 5, 10].find(function (times) { return (high - low) / (step * times) <= 7; });
    for (at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) { found.push(at * step); }
    return found;
  }

  // What a row says, a line per cell.
  function words(row) {
    var heads = row.closest('table').tHead.rows[0].cells;
    return Array.from(row.cells).map(function (cell, k) {
      return cell.textContent ? heads[k].textContent + ': ' + cell.textContent : '';
    }).filter(Boolean).join('\n');
  }

  // The mapping of a row where the page has it, else the row itself.
  function follow(row) {
    var link = row.querySelector('a[href^="#"]');
    if (link) { link.click(); return; }
    for (var at = row; at; at = at.parentElement) { if (at.tagName === 'DETAILS') { at.open = true; } }
    row.scrollIntoView({block: 'center'});
    row.classList.add('found');
    setTimeout(function () { row.classList.remove('found'); }, 4000);
  }

  // Ends of an axis that holds all values, with room at both sides.
  function ends(values, log) {
    var low = Math.min.apply(null, values), high = Math.max.apply(null, values);
    if (log) { return low < high ? [low / Math.pow(high / low, 0.04), high * Math.pow(high / low, 0.04)] : [low / 2, high * 2]; }
    var room = low < high ? (high - low) * 0.04 : Math.abs(low) / 2 || 1;
    return [low - room, high + room];
  }

  function column(rows, at) {
    return rows.map(function (row) {
      var words = (row.cells[at].getAttribute('title') || row.cells[at].textContent).split(' ');
      return {value: words[0] === '' ? NaN : Number(words[0]), unit: words.slice(1).join(' ')};
    });
  }

  // A rectangle that is drawn with the mouse or a finger, in the picture's own units.
  function rectangle(svg, chosen) {
    var from = null, frame = null;
    function place(event) {
      var at = svg.createSVGPoint();
      at.x = event.clientX;
      at.y = event.clientY;
      return at.matrixTransform(svg.getScreenCTM().inverse());
    }
    function box(a, b) {
      return {x: Math.min(a.x, b.x), y: Math.min(a.y, b.y), width: Math.abs(a.x - b.x), height: Math.abs(a.y - b.y)};
    }
    svg.addEventListener('pointerdown', function (event) {
      if (event.button || event.pointerType === 'touch') { return; } // a finger scrolls
      from = place(event);
      frame = svg.appendChild(drawn('rect', {'class': 'zoomed', fill: '#1f5c99', 'fill-opacity': 0.15, stroke: '#1f5c99'}));
      event.preventDefault();
    });
    window.addEventListener('pointermove', function (event) {
      if (!frame) { return; }
      var now = box(from, place(event));
      Object.keys(now).forEach(function (key) { frame.setAttribute(key, now[key]); });
    });
    window.addEventListener('pointerup', function (event) {
      if (!frame) { return; }
      var now = box(from, place(event));
      frame.remove();
      frame = null;
      var least = svg.viewBox.baseVal.width / 50; // less is a click
      if (now.width > least && now.height > least) { chosen(now); }
    });
  }

  // Plots of the page: a rectangle is looked at more closely, until all of it is asked for.
  document.querySelectorAll('figure.plot svg').forEach(function (svg) {
    var whole = svg.getAttribute('viewBox');
    if (!whole) { return; }
    var box = made('div', '', {'class': 'tools'}), all = made('button', 'show all of the plot', {type: 'button'});
    var told = made('span', svg.querySelector('a') ? 'a point leads to its mapping, or to its row; drag a rectangle to look at it more closely'
      : 'drag a rectangle to look at it more closely', {'class': 'note'});
    box.appendChild(told);
    box.appendChild(all);
    all.hidden = true;
    svg.closest('figure').appendChild(box);
    rectangle(svg, function (now) {
      var size = svg.viewBox.baseVal, wide = Math.max(now.width, now.height * size.width / size.height);
      var high = wide * size.height / size.width;
      var corner = [now.x + (now.width - wide) / 2, now.y + (now.height - high) / 2];
      svg.setAttribute('viewBox', corner.concat([wide, high]).join(' '));
      all.hidden = false;
    });
    all.addEventListener('click', function () { svg.setAttribute('viewBox', whole); all.hidden = true; });
  });

  // Points of fronts: under the mouse the figures of their rows, at a click the mapping.
  document.querySelectorAll('figure.plot svg a[href^="#row-"]').forEach(function (link) {
    var row = document.getElementById(link.getAttribute('href').slice(1));
    link.appendChild(drawn('title', {}, words(row)));
    link.addEventListener('click', function (event) { event.preventDefault(); follow(row); });
    link.addEventListener('dragstart', function (event) { event.preventDefault(); }); // a rectangle may begin there
  });

  function chart(table, rows, numeric) {
    var heads = Array.from(table.tHead.rows[0].cells).map(function (head) { return head.textContent; });
    var part = made('details', '', {'class': 'chart'}), tools = made('div', '', {'class': 'tools'});
    var place = part.appendChild(made('figure'));
    part.insertBefore(made('summary', 'plot two columns of this table'), place);
    part.insertBefore(tools, place);
    var shown = null; // the part of both axes that is looked at, null for all

    function choice(label, at) {
      var outer = made('label', label + ' '), select = made('select');
      numeric.forEach(function (number) {
        select.appendChild(made('option', heads[number], {value: number}));
      });
      select.selectedIndex = at;
      outer.appendChild(select);
      tools.appendChild(outer);
      return select;
    }
    function tick(label) {
      var outer = made('label', ''), input = made('input', '', {type: 'checkbox'});
      outer.appendChild(input);
      outer.appendChild(document.createTextNode(' ' + label));
      tools.appendChild(outer);
      return input;
    }
    var last = numeric.length - 1;
    var across = choice('across', Math.max(0, last - 1)), acrossLog = tick('logarithmic across');
    var up = choice('up', last), upLog = tick('logarithmic up');
    var all = made('button', 'show all points', {type: 'button'}), told = made('span', '', {'aria-live': 'polite'});
    tools.appendChild(all);
    tools.appendChild(told);

    function draw() {
      place.textContent = '';
      all.hidden = !shown;
      if (!part.open) { return; }
      var seen = rows.filter(function (row) { return !row.hidden; });
      var xs = column(seen, Number(across.value)), ys = column(seen, Number(up.value));
      var logs = [acrossLog.checked, upLog.checked];
      var kept = seen.map(function (row, at) { return {row: row, x: xs[at].value, y: ys[at].value, at: at}; });
      kept = kept.filter(function (p) {
        return Number.isFinite(p.x) && Number.isFinite(p.y) && !(logs[0] && p.x <= 0) && !(logs[1] && p.y <= 0);
      });
      var left = seen.length - kept.length, many = kept.length;
      kept = kept.slice(0, MOST);
      told.textContent = kept.length + ' points' + (many > MOST ? ' of ' + many : '')
        + (left ? '; ' + left + (left > 1 ? ' rows have' : ' row has') + ' no place on these axes' : '');
      if (!kept.length) { return; }
      var span = shown || {x: ends(kept.map(function (p) { return p.x; }), logs[0]),
        y: ends(kept.map(function (p) { return p.y; }), logs[1])};
      var units = [kept[0].at, kept[0].at].map(function (at, axis) { return [xs, ys][axis][at].unit; });
      function scaled(value, axis) {
        var range = axis ? span.y : span.x, of = logs[axis] ? Math.log : Number;
        return (of(value) - of(range[0])) / (of(range[1]) - of(range[0]));
      }
      function x(value) { return LEFT + scaled(value, 0) * (WIDE - LEFT - RIGHT); }
      function y(value) { return HIGH - BELOW - scaled(value, 1) * (HIGH - TOP - BELOW); }
      var name = heads[Number(up.value)] + ' over ' + heads[Number(across.value)];
      var svg = drawn('svg', {viewBox: '0 0 ' + WIDE + ' ' + HIGH, role: 'img', 'class': 'points'});
      svg.appendChild(drawn('title', {}, name));
      svg.appendChild(drawn('rect', {x: LEFT, y: TOP, width: WIDE - LEFT - RIGHT, height: HIGH - TOP - BELOW, 'class': 'frame'}));
      ticks(span.x[0], span.x[1], logs[0]).forEach(function (value) {
        svg.appendChild(drawn('line', {x1: x(value), x2: x(value), y1: TOP, y2: HIGH - BELOW, 'class': 'grid'}));
        svg.appendChild(drawn('text', {x: x(value), y: HIGH - BELOW + 16, 'text-anchor': 'middle'}, engineering(value, units[0])));
      });
      ticks(span.y[0], span.y[1], logs[1]).forEach(function (value) {
        svg.appendChild(drawn('line', {x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value), 'class': 'grid'}));
        svg.appendChild(drawn('text', {x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end'}, engineering(value, units[1])));
      });
      svg.appendChild(drawn('text', {x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 8, 'text-anchor': 'middle', 'class': 'axis'}, heads[Number(across.value)]));
      var middle = (TOP + HIGH - BELOW) / 2;
      svg.appendChild(drawn('text', {x: 14, y: middle, 'text-anchor': 'middle', 'class': 'axis', transform: 'rotate(-90 14 ' + middle + ')'}, heads[Number(up.value)]));
      kept.forEach(function (p) {
        var at = [x(p.x), y(p.y)];
        if (at[0] < LEFT - 1 || at[0] > WIDE - RIGHT + 1 || at[1] < TOP - 1 || at[1] > HIGH - BELOW + 1) { return; }
        var dot = drawn('circle', {cx: at[0].toFixed(1), cy: at[1].toFixed(1), r: 3.5});
        dot.appendChild(drawn('title', {}, words(p.row)));
        dot.addEventListener('click', function () { follow(p.row); });
        svg.appendChild(dot);
      });
      rectangle(svg, function (now) {
        function value(share, range, log) {
          return log ? range[0] * Math.pow(range[1] / range[0], share) : range[0] + share * (range[1] - range[0]);
        }
        var w = WIDE - LEFT - RIGHT, h = HIGH - TOP - BELOW;
        shown = {
          x: [value((now.x - LEFT) / w, span.x, logs[0]), value((now.x + now.width - LEFT) / w, span.x, logs[0])],
          y: [value((HIGH - BELOW - now.y - now.height) / h, span.y, logs[1]), value((HIGH - BELOW - now.y) / h, span.y, logs[1])]
        };
        draw();
      });
      place.appendChild(svg);
    }
    function anew() { shown = null; draw(); }
    [across, up, acrossLog, upLog].forEach(function (input) { input.addEventListener('change', anew); });
    all.addEventListener('click', anew);
    part.addEventListener('toggle', anew);
    table.closest('.wide').parentNode.addEventListener('input', function () { draw(); });
    return part;
  }

  document.querySelectorAll('table').forEach(function (table) {
    var place = table.closest('.wide');
    if (!place || !table.tHead || !table.tBodies.length) { return; }
    var rows = Array.from(table.tBodies[0].rows), heads = Array.from(table.tHead.rows[0].cells);
    var numeric = heads.map(function (head, at) { return at; }).filter(function (at) {
      if (!heads[at].classList.contains('n')) { return false; }
      var values = new Set(column(rows, at).map(function (one) { return one.value; }).filter(Number.isFinite));
      return values.size > 1;
    });
    if (rows.length <= FEW || numeric.length < 2) { return; }
    var after = place.nextSibling;
    place.parentNode.insertBefore(chart(table, rows, numeric), after);
  });
}());
