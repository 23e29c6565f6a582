'use strict';
// Tables that sort and filter, sections that open when a link leads to them. Text comes from the page itself
// and goes back by textContent alone; nothing is fetched and nothing is kept.
(function () {
  var FEW = 5; // rows of a table that needs no filter
  var words = new Intl.Collator('en', {numeric: true});

  function made(name, text, attributes) {
    var element = document.createElement(name);
    if (text) { element.textContent = text; }
    Object.keys(attributes || {}).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    return element;
  }

  // What a cell is sorted by: the exact figure in its title, else its text; empty ones come last.
  function figure(cell) {
    var text = (cell.getAttribute('title') || '').split(' ')[0];
    if (text === 'inf' || text === '-inf') { return {size: text === 'inf' ? Infinity : -Infinity}; }
    if (text === 'True' || text === 'False') { return {size: Number(text === 'True')}; }
    if (text === '' || Number.isNaN(Number(text))) { return null; }
    return {size: Number(text), exact: /^-?\d+$/.test(text) ? BigInt(text) : null};
  }

  function order(a, b) {
    if (a.size !== b.size) { return a.size < b.size ? -1 : 1; }
    if (typeof a.exact === 'bigint' && typeof b.exact === 'bigint' && a.exact !== b.exact) {
      return a.exact < b.exact ? -1 : 1; // beyond 2^53 two numbers may look alike
    }
    return 0;
  }

  function sorted(rows, column, numeric, sign) {
    var keys = rows.map(function (row, at) {
      var cell = row.cells[column];
      var key = numeric ? figure(cell) : (cell.textContent === '-' ? null : cell.textContent);
      return {row: row, key: key, at: at};
    });
    keys.sort(function (a, b) {
      if (a.key === null || b.key === null) { return (a.key === null) - (b.key === null) || a.at - b.at; }
      var way = numeric ? order(a.key, b.key) : words.compare(a.key, b.key);
      return sign * way || a.at - b.at;
    });
    return keys.map(function (key) { return key.row; });
  }

  function sortable(table, original) {
    var heads = Array.from(table.tHead.rows[0].cells), body = table.tBodies[0];
    heads.forEach(function (head, column) {
      var button = made('button', head.textContent, {type: 'button'});
      head.textContent = '';
      head.setAttribute('scope', 'col');
      head.setAttribute('aria-sort', 'none');
      head.appendChild(button);
      button.addEventListener('click', function () {
        var next = {none: 'ascending', ascending: 'descending', descending: 'none'};
        var way = next[head.getAttribute('aria-sort')];
        heads.forEach(function (other) { other.setAttribute('aria-sort', 'none'); });
        head.setAttribute('aria-sort', way);
        var rows = original;
        if (way !== 'none') {
          rows = sorted(original, column, head.classList.contains('n'), way === 'ascending' ? 1 : -1);
        }
        rows.forEach(function (row) { body.appendChild(row); });
      });
    });
  }

  function filtered(table, rows, place) {
    var box = made('div', '', {'class': 'tools'}), label = made('label', 'filter ');
    var input = made('input', '', {type: 'search', placeholder: 'words that a row has'});
    var told = made('output', rows.length + ' rows', {'aria-live': 'polite'});
    label.appendChild(input);
    box.appendChild(label);
    box.appendChild(told);
    place.parentNode.insertBefore(box, place);
    var texts = rows.map(function (row) {
      return Array.from(row.cells).map(function (cell) { return cell.textContent; }).join(' ').toLowerCase();
    });
    input.addEventListener('input', function () {
      var asked = input.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
      rows.forEach(function (row, at) {
        var fits = asked.every(function (word) { return texts[at].includes(word); });
        row.hidden = !fits;
        shown += Number(fits);
      });
      told.textContent = (asked.length ? shown + ' of ' : '') + rows.length + ' rows';
    });
  }

  // Headings explain themselves under the mouse; here also to keys, fingers and screen readers.
  function explained(table, place) {
    var list = made('dl');
    Array.from(table.tHead.rows[0].cells).forEach(function (head) {
      if (!head.title) { return; }
      list.appendChild(made('dt', head.textContent));
      list.appendChild(made('dd', head.title));
    });
    if (!list.children.length) { return; }
    var more = made('details', '', {'class': 'terms'});
    more.appendChild(made('summary', 'what the columns mean'));
    more.appendChild(list);
    place.parentNode.insertBefore(more, place.nextSibling);
  }

  // What stands above: the heading of the section, or the last one before.
  function heading(element) {
    var part = element.closest('details'), head = part && part.querySelector('summary');
    var before = '';
    document.querySelectorAll('h1, h2, h3, h4').forEach(function (at) {
      if (at.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING) { before = at.textContent; }
    });
    return (before || (head && head.textContent) || 'table').trim();
  }

  document.querySelectorAll('table').forEach(function (table) {
    if (!table.tHead || !table.tHead.rows.length || !table.tBodies.length) { return; }
    var place = table.parentNode;
    if (!place.classList.contains('wide')) {
      place = made('div', '', {'class': 'wide'});
      table.parentNode.insertBefore(place, table);
      place.appendChild(table);
    }
    place.tabIndex = 0; // so that keys scroll it
    place.setAttribute('role', 'group');
    place.setAttribute('aria-label', heading(table));
    var rows = Array.from(table.tBodies[0].rows);
    explained(table, place);
    sortable(table, rows);
    if (rows.length > FEW) { filtered(table, rows, place); }
  });

  // A picture that is wider than the page starts in its middle, where its root is, and can be made to fit; its
  // letters stay readable, so that one that is much wider still scrolls.
  var LEAST = 0.8;
  document.querySelectorAll('.picture').forEach(function (picture) {
    var box = made('div', '', {'class': 'tools'});
    var button = made('button', 'fit to the page', {type: 'button', 'aria-pressed': 'false'});
    var svg = picture.querySelector('svg'), least = svg ? LEAST * svg.viewBox.baseVal.width : 0;
    if (svg) { svg.style.setProperty('--least', least + 'px'); }
    button.addEventListener('click', function () {
      button.setAttribute('aria-pressed', String(picture.classList.toggle('fit')));
      settle();
    });
    function settle() {
      var over = picture.scrollWidth - picture.clientWidth;
      picture.scrollLeft = over / 2;
      button.textContent = least <= picture.clientWidth ? 'fit to the page' : 'smaller';
      box.hidden = over <= 0 && !picture.classList.contains('fit');
    }
    box.appendChild(button);
    picture.parentNode.insertBefore(box, picture);
    var part = picture.closest('details');
    if (part) { part.addEventListener('toggle', settle); }
    window.addEventListener('resize', settle);
    settle();
  });

  // Text that is a file can be taken along.
  document.querySelectorAll('pre.file').forEach(function (pre) {
    var name = pre.getAttribute('data-file');
    var box = made('div', '', {'class': 'tools'}), told = made('output', '', {'aria-live': 'polite'});
    var copy = made('button', 'copy', {type: 'button', 'aria-label': 'copy ' + name});
    var save = made('button', 'save as ' + name, {type: 'button'});
    copy.addEventListener('click', function () {
      var range = document.createRange();
      range.selectNodeContents(pre);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      // From a file there may be no clipboard to write to; what is selected can be copied all the same.
      told.textContent = document.execCommand('copy') ? 'copied' : 'selected: copy it with the keyboard';
    });
    save.addEventListener('click', function () {
      var link = made('a', '', {download: name});
      link.href = URL.createObjectURL(new Blob([pre.textContent], {type: 'application/yaml'}));
      link.click();
      setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
    });
    [copy, save, told].forEach(function (element) { box.appendChild(element); });
    pre.parentNode.insertBefore(box, pre);
  });

  var parts = Array.from(document.querySelectorAll('details'));
  function asked() {
    var place = location.hash.slice(1);
    try { place = decodeURIComponent(place); } catch (error) { /* a stray % names no place of the page */ }
    return place ? document.getElementById(place) : null;
  }
  function reveal() {
    var goal = asked();
    for (var at = goal; at; at = at.parentElement) { if (at.tagName === 'DETAILS') { at.open = true; } }
    if (goal) { goal.scrollIntoView(); }
  }
  document.querySelectorAll('a[href^="#"]').forEach(function (link) {
    link.addEventListener('click', function () { setTimeout(reveal); }); // also if it is the place already
  });
  window.addEventListener('hashchange', reveal);
  reveal();

  document.querySelectorAll('nav').forEach(function (nav) {
    var box = made('div', '', {'class': 'tools'});
    [['open all', true], ['fold all', false]].forEach(function (way) {
      var button = made('button', way[0], {type: 'button'});
      button.addEventListener('click', function () {
        document.querySelectorAll('details.part').forEach(function (part) { part.open = way[1]; });
      });
      box.appendChild(button);
    });
    nav.appendChild(box);
  });

  // Paper shows what is folded, but not the explanations that stand beside every table.
  var folded = [];
  window.addEventListener('beforeprint', function () {
    folded = parts.filter(function (part) { return !part.open; });
    folded.forEach(function (part) { part.open = true; });
  });
  window.addEventListener('afterprint', function () {
    folded.forEach(function (part) { part.open = false; });
  });
}());
