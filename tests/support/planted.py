"""Look-alikes of everything that our SQL calls, in the schema `public`, where a login may create.

plant(database) copies each function, operator and type that a text of sql/ names from pg_catalog to
public. A copy counts that it was run. `victim`, a login of its own, has a search_path that finds public
first: a name that is looked up in that path is a copy. Without such a path a copy with better matching
types would be found as well; here the path stands for all of them.
"""

import glob
import os

from .sql_names import TYPES, tokens

SQL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "sql")
VICTIM = "victim"
PLANTED_TYPES = ("text", "bytea", "json", "jsonb", "timestamptz", "uuid", "xid8", "pg_snapshot", "oid", "regclass",
                 "regtype", "regprocedure", "name", "float8")

TRAP = """
CREATE SEQUENCE public.trap;
CREATE FUNCTION public.spring(what pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.nextval('public.trap');
    RAISE WARNING 'planted % was run', what;
    RETURN true;
END $$;
GRANT USAGE ON SEQUENCE public.trap TO public"""

FUNCTIONS = """
SELECT p.proname, p.prokind, pg_catalog.array_to_string(ARRAY(
        SELECT CASE WHEN t.typname = 'any' THEN 'anyelement' ELSE pg_catalog.format_type(a.type, NULL) END
        FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY a (type, n) JOIN pg_catalog.pg_type t ON t.oid = a.type
        ORDER BY a.n), ', '),
    pg_catalog.format_type(p.prorettype, NULL), p.proretset
FROM pg_catalog.pg_proc p
WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.proname::text = ANY (%s)
    AND p.prokind IN ('f', 'a', 'w')"""

OPERATORS = """
SELECT o.oprname, pg_catalog.format_type(nullif(o.oprleft, 0), NULL), pg_catalog.format_type(o.oprright, NULL),
    pg_catalog.format_type(o.oprresult, NULL)
FROM pg_catalog.pg_operator o
WHERE o.oprnamespace = 'pg_catalog'::pg_catalog.regnamespace AND o.oprname::text = ANY (%s)"""


def named():
    """(functions, operators): what any text of sql/ could call by these names."""
    functions, operators = set(), set()

    def read(text):
        found = tokens(text)
        for (kind, value, _), (_, after, _) in zip(found, [*found[1:], ("", "", 0)]):
            if kind == "body":
                read(value.split("$", 2)[2].rpartition("$")[0].rpartition("$")[0])
            elif kind == "word" and after == "(":
                functions.add(value.lower())
            elif kind == "operator":
                operators.add(value)

    for path in glob.glob(os.path.join(SQL, "*", "*.sql")):
        if "barrier" not in path:
            with open(path, encoding="utf-8") as file:
                read(file.read())
    return functions - TYPES, operators


class Planted:
    def __init__(self, database):
        self.database = database
        self.dsn = database.postgres.dsn(database.name, user=VICTIM)
        database.execute(f"CREATE ROLE {VICTIM} LOGIN SUPERUSER")
        database.execute(f"ALTER ROLE {VICTIM} SET search_path = public, pg_catalog")
        database.execute(f'ALTER ROLE {database.postgres.superuser} IN DATABASE "{database.name}"'
                         " SET search_path = pg_catalog, pg_temp")
        self.connection = database.connect()
        self.count = 0
        self.plant()

    def close(self):
        self.connection.close()
        self.database.execute(f"ALTER ROLE {self.database.postgres.superuser}"
                              f' IN DATABASE "{self.database.name}" RESET search_path')
        self.database.execute(f"DROP OWNED BY {VICTIM} CASCADE")
        self.database.execute(f"DROP ROLE {VICTIM}")

    def plant(self):
        cursor = self.connection.cursor()
        cursor.execute(TRAP)
        for name in PLANTED_TYPES:
            cursor.execute(f"CREATE DOMAIN public.{name} AS pg_catalog.{name}"
                           f" CHECK (public.spring('type {name}'))")
        functions, operators = named()
        cursor.execute(FUNCTIONS, (sorted(functions),))
        for name, kind, arguments, result, many in cursor.fetchall():
            if kind == "a" and not arguments:
                self.try_to(f"CREATE FUNCTION public.step_{name}(bigint) RETURNS bigint LANGUAGE sql AS"
                            f" 'SELECT 0::bigint FROM public.spring(''{name}'')'",
                            f"CREATE AGGREGATE public.{name}(*) (SFUNC = public.step_{name}, STYPE = bigint)")
            else:
                self.try_to(self.function(f'"{name}"', f"{name}({arguments})", arguments, result, many))
        cursor.execute(OPERATORS, (sorted(operators),))
        for number, (name, left, right, result) in enumerate(cursor.fetchall()):
            arguments = f"{left}, {right}" if left else right
            sides = f"LEFTARG = {left}, RIGHTARG = {right}" if left else f"RIGHTARG = {right}"
            self.try_to(self.function(f"op_{number}", f"operator {name} ({arguments})", arguments, result),
                        f"CREATE OPERATOR public.{name} (FUNCTION = public.op_{number}, {sides})")

    def function(self, name, what, arguments, result, many=False):
        last = "RETURN;" if many or result == "void" else "RETURN NULL;"
        return (f"CREATE FUNCTION public.{name}({arguments}) RETURNS {'SETOF ' if many else ''}{result}"
                f" LANGUAGE plpgsql AS $plant$ BEGIN PERFORM public.spring('{what}'); {last} END $plant$")

    def try_to(self, *statements):
        """Some cannot be: internal types, or a result that does not follow from the arguments."""
        cursor = self.connection.cursor()
        try:
            for statement in statements:
                cursor.execute(statement)
            self.count += 1
        except Exception as error:  # pylint: disable=broad-except
            assert error.pgcode and error.pgcode[:2] in ("42", "0A"), error

    def runs(self):
        """How often a copy was run."""
        (last, called), = self.database.execute("SELECT last_value, is_called FROM public.trap")
        return last if called else 0

    def which(self):
        """What was run, for the message of a failing test."""
        return [line for line in self.database.postgres.process.output().splitlines() if "planted" in line
                and "WARNING" in line][-5:]

    def as_victim(self, statement):
        """By a session of the login itself, which finds the copies."""
        return self.database.postgres.connect(self.database.name, user=VICTIM).cursor().execute(statement)
